#include "engine/model/model_files.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/base/json_file.h"
#include "engine/base/status_macros.h"
#include "engine/model/gguf_file.h"
#include "engine/model/gguf_tensors.h"
#include "engine/model/safetensors.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// What models with a head put before the names of the base model's tensors.
constexpr absl::string_view kBasePrefixes[] = {"model.", "transformer.", "gpt_neox."};
// Weights in a form that runs code when it is read.
constexpr absl::string_view kPickledNames[] = {"pytorch_model.bin", "pytorch_model.bin.index.json"};

std::string Join(const std::string& folder, absl::string_view name) {
  return absl::StrCat(folder, "/", name);
}

bool Has(const std::string& folder, absl::string_view name) {
  std::error_code ignored;  // whoever opens it says what is wrong
  return fs::exists(Join(folder, name), ignored);
}

bool IsInside(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first ==
         folder.end();
}

// That the file `name`, which an index gives, is one of this folder's.
absl::Status CheckIndexed(const std::string& folder, absl::string_view name) {
  if (name.empty() || name == "." || name == ".." || absl::StrContains(name, '/') ||
      absl::StrContains(name, '\0')) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", absl::CHexEscape(name), "\" is no plain file name"));
  }
  const std::string path = Join(folder, name);
  std::error_code error;
  const fs::path target = fs::canonical(path, error);
  if (error) return ErrnoToStatus(error.value(), "open", path);
  fs::path root = fs::canonical(folder, error);
  if (error) return ErrnoToStatus(error.value(), "open", folder);
  const fs::path index = fs::canonical(Join(folder, kIndexName), error);
  if (error) return ErrnoToStatus(error.value(), "open", Join(folder, kIndexName));
  if (root.parent_path().filename() == "snapshots") root = root.parent_path().parent_path();
  if (IsInside(target, root) || target.parent_path() == index.parent_path()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(path, " is a link that leads out of it, to ",
                                                 target.string(), "; put the file itself there"));
}

// weight_map of an index: tensor -> file.
absl::StatusOr<std::map<std::string, std::string>> ReadIndex(const std::string& folder) {
  const std::string path = Join(folder, kIndexName);
  MILLRACE_ASSIGN_OR_RETURN(const json index, ReadJsonFile(path));
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object() || map->empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": has no weight_map"));
  }
  std::map<std::string, std::string> files;
  std::set<std::string> checked;
  for (const auto& [tensor, file] : map->items()) {
    absl::Status status;
    if (!file.is_string()) {
      status = absl::InvalidArgumentError(absl::StrCat(file.dump(), " is no name"));
    } else if (checked.insert(file.get<std::string>()).second) {
      status = CheckIndexed(folder, file.get_ref<const std::string&>());
    }
    if (!status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat(path, ": weight_map has tensor \"", tensor,
                                       "\" where no file of this folder is: ", status.message()));
    }
    files[tensor] = file.get<std::string>();
  }
  return files;
}

// Adds the tensors of one safetensors file.
absl::Status AddSafetensors(const std::string& path, std::vector<StoredTensor>& stored) {
  MILLRACE_ASSIGN_OR_RETURN(SafetensorsReader opened, SafetensorsReader::Open(path));
  const auto reader = std::make_shared<const SafetensorsReader>(std::move(opened));
  for (const auto& [name, tensor] : reader->tensors()) {
    const SafetensorsEntry* entry = &tensor;
    StoredTensor& item = stored.emplace_back();
    item.name = item.name_in_file = name;
    item.file = path;
    item.shape = entry->shape;
    item.position = entry->offset_bytes;
    if (entry->dtype == FileDType::kOther) continue;
    item.read = [reader, entry](int64_t first, absl::Span<float> out) {
      return reader->Read(*entry, first, out);
    };
    if (entry->dtype != FileDType::kBF16) continue;
    item.read_bf16 = [reader, entry](int64_t first, absl::Span<BFloat16> out) {
      return reader->Read(*entry, first, out);
    };
  }
  return absl::OkStatus();
}

absl::Status NoWeights(const std::string& folder) {
  for (absl::string_view name : kPickledNames) {
    if (!Has(folder, name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(folder, ": has its weights in ", name,
                     ", which runs code when it is read; convert it once, with transformers: ",
                     "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER)"));
  }
  return absl::NotFoundError(
      absl::StrCat(folder, ": has neither ", kWeightsName, " nor ", kIndexName));
}

absl::StatusOr<std::vector<StoredTensor>> FolderTensors(const std::string& folder) {
  std::vector<StoredTensor> stored;
  if (Has(folder, kWeightsName)) {
    MILLRACE_RETURN_IF_ERROR(AddSafetensors(Join(folder, kWeightsName), stored));
    return stored;
  }
  if (!Has(folder, kIndexName)) return NoWeights(folder);
  MILLRACE_ASSIGN_OR_RETURN(const auto index, ReadIndex(folder));
  std::set<std::string> names;
  for (const auto& [tensor, file] : index) names.insert(file);
  std::set<std::pair<std::string, std::string>> found;
  for (const std::string& file : names) {
    const size_t first = stored.size();
    MILLRACE_RETURN_IF_ERROR(AddSafetensors(Join(folder, file), stored));
    for (size_t i = first; i < stored.size(); ++i) found.insert({stored[i].name, file});
  }
  for (const auto& [tensor, file] : index) {
    if (found.count({tensor, file})) continue;
    return absl::InvalidArgumentError(absl::StrCat(Join(folder, kIndexName), ": has tensor \"",
                                                   tensor, "\" in ", file,
                                                   ", which does not have it"));
  }
  return stored;
}

absl::StatusOr<std::vector<StoredTensor>> TensorsAt(const std::string& path) {
  if (!IsGgufPath(path)) return FolderTensors(path);
  MILLRACE_ASSIGN_OR_RETURN(std::shared_ptr<const GgufFile> file, GgufFile::Open(path));
  return GgufTensors(std::move(file));
}

}  // namespace

bool IsGgufPath(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

absl::StatusOr<ModelWeights> ModelWeights::Open(const std::string& path) {
  MILLRACE_ASSIGN_OR_RETURN(std::vector<StoredTensor> stored, TensorsAt(path));
  ModelWeights weights;
  for (StoredTensor& tensor : stored) {
    std::string name = tensor.name, file = tensor.file;
    if (!weights.tensors_.emplace(name, std::move(tensor)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(file, ": tensor \"", name, "\" is in another file too"));
    }
  }
  return weights;
}

std::optional<StoredTensor> ModelWeights::Take(absl::string_view name) {
  auto place = tensors_.find(name);
  for (absl::string_view prefix : kBasePrefixes) {
    if (place == tensors_.end() && absl::StartsWith(name, prefix)) {
      place = tensors_.find(name.substr(prefix.size()));
    }
  }
  if (place == tensors_.end()) return std::nullopt;
  StoredTensor found = std::move(place->second);
  tensors_.erase(place);
  return found;
}

}  // namespace millrace
