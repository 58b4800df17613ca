#include "server/blobs/model_store.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"
#include "engine/model/model_summary.h"
#include "server/base/errors.h"
#include "server/base/resource_names.h"
#include "server/blobs/model_path.h"

namespace millrace {
namespace fs = std::filesystem;
namespace {

constexpr char kConfig[] = "config.json";
// What a model directory may have beside config.json and weights; the client sends no other.
constexpr const char* kCompanions[] = {"model.safetensors.index.json",
                                       "generation_config.json",
                                       "tokenizer.json",
                                       "tokenizer_config.json",
                                       "tokenizer.model",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "vocab.json",
                                       "merges.txt",
                                       "chat_template.jinja"};

absl::Status Invalid(const std::string& field, const std::string& what) {
  return MakeFieldError(ErrorReason::kModelInvalid, {{field, what}});
}

bool IsWeights(absl::string_view name) { return absl::EndsWith(name, ".safetensors"); }
bool IsGguf(absl::string_view name) { return absl::EndsWith(name, ".gguf"); }

bool IsOfModel(const std::string& name) {
  return name == kConfig || IsWeights(name) ||
         std::find(std::begin(kCompanions), std::end(kCompanions), name) != std::end(kCompanions);
}

absl::Status CheckFiles(const std::vector<BlobFile>& files) {
  bool has_config = false, has_weights = false;
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string& name = files[i].path;
    const bool in_folder = absl::StrContains(name, '/');
    if (IsGguf(name) && files.size() == 1 && !in_folder) return absl::OkStatus();
    if (in_folder || !IsOfModel(name)) {
      return Invalid(absl::StrCat("model.files[", i, "].path"),
                     IsGguf(name) && !in_folder
                         ? absl::StrCat("`", name,
                                        "` is a GGUF file, which is a whole model; "
                                        "declare it alone")
                         : absl::StrCat("`", name, "` is none of a model's files; leave it out"));
    }
    has_config = has_config || name == kConfig;
    has_weights = has_weights || IsWeights(name);
  }
  if (has_config && has_weights) return absl::OkStatus();
  return Invalid("model.files",
                 absl::StrCat("has no ", has_config ? "*.safetensors" : kConfig,
                              "; declare a Hugging Face model directory (config.json "
                              "and *.safetensors), or one .gguf file"));
}

// A message that names files by what they are called in the model alone.
std::string Without(const std::string& folder, absl::string_view message) {
  if (folder.empty()) return std::string(message);
  return absl::StrReplaceAll(message, {{folder + "/", ""}, {folder + ": ", ""}});
}

// `folder` is not shown in messages.
absl::StatusOr<nlohmann::ordered_json> FactsOf(const std::string& path,
                                               const std::string& folder = "") {
  const absl::StatusOr<ModelSummary> found = SummarizeModel(path);
  if (absl::IsUnimplemented(found.status())) {
    return MakeError(ErrorReason::kModelUnsupported, Without(folder, found.status().message()));
  }
  if (absl::IsInvalidArgument(found.status()) || absl::IsNotFound(found.status())) {
    return MakeError(ErrorReason::kModelInvalid, Without(folder, found.status().message()));
  }
  MILLRACE_RETURN_IF_ERROR(found.status());
  return nlohmann::ordered_json{
      {model_fact::kFormat, found->gguf ? model_fact::kGguf : model_fact::kSafetensors},
      {model_fact::kFamily, found->spec.model_type},
      {model_fact::kParameters, found->parameter_count},
      {model_fact::kVocab, found->spec.vocab_size},
      {model_fact::kContext, found->spec.max_positions},
      {model_fact::kLayers, found->spec.num_layers},
      {model_fact::kHidden, found->spec.hidden_size},
      {model_fact::kWeightType, found->weight_type},
      {model_fact::kTokenizer, found->tokenizer},
      {model_fact::kNotes, found->notes}};
}

// The one GGUF file of a folder, or the folder.
std::string ModelIn(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> files;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    files.push_back(entry->path().string());
  }
  return files.size() == 1 && IsGguf(files[0]) ? files[0] : folder;
}

// Names of the files of a model that lies at `path`.
absl::StatusOr<std::vector<std::string>> NamesAt(const std::string& path) {
  std::error_code error;
  if (fs::is_regular_file(path, error)) return std::vector<std::string>{fs::path(path).filename()};
  std::vector<std::string> names;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (IsOfModel(name)) names.push_back(name);
  }
  if (error) {
    return Invalid("path", absl::StrCat("`", path, "` cannot be read: ", error.message()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool IsBelow(const fs::path& path, const fs::path& folder) {
  const auto ends = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return ends.first == folder.end();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelStore>> ModelStore::Open(Options options) {
  options.blobs.kind = &kModelKind;
  options.blobs.inspect = [](const std::string& folder) {
    return FactsOf(ModelIn(folder), folder);
  };
  std::unique_ptr<ModelStore> store(new ModelStore(std::move(options.model_dirs)));
  MILLRACE_ASSIGN_OR_RETURN(store->blobs_, BlobStore::Open(std::move(options.blobs)));
  return store;
}

absl::StatusOr<StoredBlob> ModelStore::Create(const std::string& id, std::vector<BlobFile> files) {
  if (!files.empty()) MILLRACE_RETURN_IF_ERROR(CheckFiles(files));
  return blobs_->Create(id, std::move(files));
}

absl::StatusOr<std::string> ModelStore::RealPath(const std::string& path) const {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  const std::string setting =
      "of which the daemon's setting model_dirs (--model-dir) names those "
      "that are allowed";
  if (model_dirs_.empty()) {
    return MakeError(ErrorReason::kPathNotAllowed,
                     absl::StrCat("path: `", path, "` does not lie below a folder ", setting,
                                  "; it names none yet"));
  }
  // What is not there, or not to be seen, is told apart from what is only where it may be.
  const fs::path judged = error ? fs::weakly_canonical(path, error) : real;
  const bool allowed =
      std::any_of(model_dirs_.begin(), model_dirs_.end(), [&](const std::string& folder) {
        std::error_code ignored;
        const fs::path root = fs::canonical(folder, ignored);
        return !ignored && !judged.empty() && judged != root && IsBelow(judged, root);
      });
  if (!allowed) {
    // Of other places nobody is told what there is.
    const bool through_link =
        std::any_of(model_dirs_.begin(), model_dirs_.end(), [&](const std::string& folder) {
          return IsBelow(fs::path(path).lexically_normal(), folder);
        });
    return MakeError(
        ErrorReason::kPathNotAllowed,
        absl::StrCat(
            "path: `", path, "`",
            real.empty() || !through_link ? "" : absl::StrCat(", which is ", real.string(), ","),
            " does not lie below a folder ", setting, ": ", absl::StrJoin(model_dirs_, ", ")));
  }
  if (real.empty()) return Invalid("path", absl::StrCat("`", path, "` is not there"));
  return real.string();
}

absl::StatusOr<StoredBlob> ModelStore::Register(const std::string& id, const std::string& path) {
  MILLRACE_RETURN_IF_ERROR(CheckId("model_id", id));
  if (!fs::path(path).is_absolute()) {
    return MakeFieldError(
        ErrorReason::kRequestInvalid,
        {{"path", absl::StrCat("`", path, "` is not absolute; give the path from / on")}});
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::string real, RealPath(path));
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesAt(real));
  std::error_code ignored;
  const bool is_folder = fs::is_directory(real, ignored);
  std::vector<BlobFile> files;
  for (const std::string& name : names) {
    const std::string full = is_folder ? absl::StrCat(real, "/", name) : real;
    MILLRACE_RETURN_IF_ERROR(RealPath(full).status());
    // To read from a pipe would be to wait for whoever writes to it.
    if (!fs::is_regular_file(full, ignored)) {
      return Invalid("path", absl::StrCat("`", full, "` is no file; remove it"));
    }
    MILLRACE_ASSIGN_OR_RETURN(BlobFile file, StatModelFile(full, name));
    files.push_back(std::move(file));
  }
  MILLRACE_ASSIGN_OR_RETURN(nlohmann::ordered_json facts, FactsOf(real));
  facts[kModelPathFact] = real;
  return blobs_->Add(id, std::move(files), std::move(facts));
}

}  // namespace millrace
