#include "client/lib/model_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/lib/local_file.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr char kConfig[] = "config.json";
constexpr char kWeights[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";
constexpr const char* kOthers[] = {"generation_config.json",
                                   "tokenizer.json",
                                   "tokenizer_config.json",
                                   "tokenizer.model",
                                   "special_tokens_map.json",
                                   "added_tokens.json",
                                   "vocab.json",
                                   "merges.txt",
                                   "chat_template.jinja"};
constexpr size_t kMaxIdLength = 63;

bool IsGguf(const std::string& name) { return absl::EndsWith(name, ".gguf"); }

// The files that an index names; nothing when it is none.
std::optional<std::set<std::string>> NamesInIndex(const fs::path& path) {
  std::ifstream file(path);
  const nlohmann::json index = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!index.is_object()) return std::nullopt;
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object()) return std::nullopt;
  std::set<std::string> names;
  for (const auto& [tensor, name] : map->items()) {
    if (!name.is_string()) return std::nullopt;
    names.insert(name.get<std::string>());
  }
  return names;
}

absl::Status Missing(const std::string& path, const std::string& what,
                     const std::set<std::string>& names) {
  std::string fix = "; name a Hugging Face model folder or a .gguf file";
  const bool other_weights = std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return absl::EndsWith(name, ".bin") || absl::EndsWith(name, ".pt") ||
           absl::EndsWith(name, ".pth");
  });
  if (what != kConfig && other_weights) {
    fix =
        "; its weights are in a format that is not read (.bin, .pt): save the model again with "
        "safetensors, as save_pretrained() of transformers does";
  }
  return absl::InvalidArgumentError(absl::StrCat("the folder ", path, " has no ", what, fix));
}

// What of the folder's files is a model's weights.
absl::StatusOr<std::set<std::string>> WeightsOf(const std::string& path,
                                                const std::set<std::string>& names) {
  if (names.count(kIndex) == 0) {
    if (names.count(kWeights) == 0) return Missing(path, kWeights, names);
    return std::set<std::string>{kWeights};
  }
  std::optional<std::set<std::string>> weights = NamesInIndex(fs::path(path) / kIndex);
  if (!weights) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, "/", kIndex, " is damaged: it has no weight_map of file names"));
  }
  for (const std::string& name : *weights) {
    if (names.count(name) == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the folder ", path, " has no ", name, ", which its ", kIndex, " names; fetch it first"));
    }
  }
  weights->insert(kIndex);
  return *std::move(weights);
}

}  // namespace

absl::StatusOr<ModelFiles> ListModelFiles(const std::string& path) {
  absl::StatusOr<std::vector<std::string>> listed = ListFiles(path);
  if (!listed.ok()) return listed.status();
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    if (IsGguf(path)) return ModelFiles{*std::move(listed), {}};
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is no model; name a Hugging Face model folder or a .gguf file"));
  }
  const std::set<std::string> names(listed->begin(), listed->end());
  if (names.count(kConfig) == 0) {
    for (const std::string& name : names) {
      if (!IsGguf(name)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("the folder ", path,
                       " has GGUF files, each of which is a whole model; name "
                       "the one to take: ",
                       (fs::path(path) / name).string()));
    }
    return Missing(path, kConfig, names);
  }
  absl::StatusOr<std::set<std::string>> wanted = WeightsOf(path, names);
  if (!wanted.ok()) return wanted.status();
  wanted->insert(kConfig);
  wanted->insert(std::begin(kOthers), std::end(kOthers));
  ModelFiles files;
  for (const std::string& name : names) {
    (wanted->count(name) > 0 ? files.files : files.left_out).push_back(name);
  }
  return files;
}

std::string ModelIdFor(const std::string& path) {
  std::error_code ignored;
  // `.` and `..` have names too.
  fs::path place = fs::weakly_canonical(fs::absolute(path, ignored), ignored);
  if (place.filename().empty()) place = place.parent_path();
  std::string name = place.filename().string();
  if (IsGguf(name)) name.resize(name.size() - 5);
  std::string id;
  for (const char c : absl::AsciiStrToLower(name)) {
    if (absl::ascii_islower(c) || (absl::ascii_isdigit(c) && !id.empty())) {
      id.push_back(c);
    } else if (!id.empty() && id.back() != '-') {
      id.push_back('-');
    }
  }
  if (id.size() > kMaxIdLength) id.resize(kMaxIdLength);
  while (!id.empty() && id.back() == '-') id.pop_back();
  return id;
}

}  // namespace millrace
