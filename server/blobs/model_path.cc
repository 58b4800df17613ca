#include "server/blobs/model_path.h"

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"
#include "server/base/errors.h"
#include "server/base/resource_names.h"
#include "server/blobs/checkpoint_store.h"

namespace millrace {
namespace {

absl::Status Changed(const std::string& name, absl::string_view what) {
  return MakeError(ErrorReason::kModelChanged,
                   absl::StrCat(name, ": ", what, " since it was registered; delete it with ",
                                "`millrace models delete` and register it again"));
}

absl::Status CheckUnchanged(const StoredBlob& model, const std::string& path) {
  // Of a folder that is gone, or may not be entered any more, the first file is missed.
  std::error_code ignored;
  const bool is_file = std::filesystem::is_regular_file(path, ignored);
  const std::string name = ModelName(model.id);
  for (const BlobFile& file : model.files) {
    const std::string full = is_file ? path : absl::StrCat(path, "/", file.path);
    const absl::StatusOr<BlobFile> now = StatModelFile(full, file.path);
    if (!now.ok()) return Changed(name, absl::StrCat(full, " is gone"));
    if (!(*now == file)) return Changed(name, absl::StrCat(full, " has changed"));
  }
  return absl::OkStatus();
}

absl::StatusOr<NamedModel> FindStored(const DataPaths& paths, absl::string_view field,
                                      absl::string_view name) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string id, ParseModelName(field, name));
  const std::string manifest = absl::StrCat(paths.Model(id), "/manifest.json");
  const absl::StatusOr<std::string> text = ReadFile(manifest);
  if (!text.ok()) {
    return MakeError(ErrorReason::kModelNotFound,
                     absl::StrCat(field, ": there is no model ", name,
                                  "; `millrace models list` lists those there are"));
  }
  MILLRACE_ASSIGN_OR_RETURN(const StoredBlob model, ReadBlobManifest(*text, manifest));
  if (!model.ready) {
    return MakeError(
        ErrorReason::kModelInvalid,
        absl::StrCat(field, ": ", name, " is still being uploaded; finish the upload"));
  }
  const std::string path = ModelPathOf(model, absl::StrCat(paths.Model(id), "/files"));
  if (!TextFact(model, kModelPathFact).empty()) {
    MILLRACE_RETURN_IF_ERROR(CheckUnchanged(model, path));
  }
  return NamedModel{std::string(name), path};
}

}  // namespace

absl::StatusOr<BlobFile> StatModelFile(const std::string& path, const std::string& name) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) return ErrnoToStatus(errno, "read", path);
  BlobFile file;
  file.path = name;
  file.size_bytes = static_cast<int64_t>(status.st_size);
  file.modified_nanos = absl::ToUnixNanos(absl::TimeFromTimespec(status.st_mtim));
  return file;
}

std::string ModelPathOf(const StoredBlob& model, const std::string& files_folder) {
  const std::string elsewhere = TextFact(model, kModelPathFact);
  if (!elsewhere.empty()) return elsewhere;
  if (model.files.size() == 1 && absl::EndsWith(model.files[0].path, ".gguf")) {
    return absl::StrCat(files_folder, "/", model.files[0].path);
  }
  return files_folder;
}

absl::StatusOr<std::string> FindTokenizer(const DataPaths& paths, absl::string_view field,
                                          absl::string_view name) {
  if (!absl::StartsWith(name, "tokenizers/")) {
    MILLRACE_ASSIGN_OR_RETURN(const NamedModel model, FindModel(paths, field, name));
    return model.path;
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::string id, ParseTokenizerName(field, name));
  const std::string folder = absl::StrCat(paths.Tokenizer(id), "/files");
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    return MakeError(ErrorReason::kTokenizerNotFound,
                     absl::StrCat(field, ": there is no tokenizer ", name,
                                  "; `millrace tokenizers list` lists those there are"));
  }
  return folder;
}

absl::StatusOr<NamedModel> FindModel(const DataPaths& paths, absl::string_view field,
                                     absl::string_view name) {
  if (!absl::StartsWith(name, "jobs/")) return FindStored(paths, field, name);
  MILLRACE_ASSIGN_OR_RETURN(const CheckpointName checkpoint, ParseCheckpointName(field, name));
  absl::StatusOr<StoredCheckpoint> found =
      CheckpointStore(paths).Get(checkpoint.job_id, checkpoint.step);
  if (!found.ok()) {
    return WithMessage(found.status(), absl::StrCat(field, ": ", found.status().message()));
  }
  return NamedModel{absl::StrCat(JobName(checkpoint.job_id), "/checkpoints/", found->step),
                    absl::StrCat(paths.Checkpoints(checkpoint.job_id), "/", found->step)};
}

}  // namespace millrace
