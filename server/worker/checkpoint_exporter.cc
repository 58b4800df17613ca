#include "server/worker/checkpoint_exporter.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"
#include "server/base/errors.h"
#include "server/base/resource_names.h"
#include "server/worker/child_task.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWeightTypes[] = {"BF16", "F16", "F32", "Q8_0"};

absl::Status CheckRequest(const CheckpointExporter::Request& request) {
  if (request.format != "gguf") {
    return MakeFieldError(ErrorReason::kConfigInvalid,
                          {{"format", absl::StrCat("`", request.format,
                                                   "` is not known; use gguf (a checkpoint is a "
                                                   "Hugging Face model directory already)")}});
  }
  if (request.weight_type.empty() || std::find(std::begin(kWeightTypes), std::end(kWeightTypes),
                                               request.weight_type) != std::end(kWeightTypes)) {
    return absl::OkStatus();
  }
  return MakeFieldError(ErrorReason::kConfigInvalid,
                        {{"weight_type", absl::StrCat("`", request.weight_type,
                                                      "` is not known; use one of BF16, F16, F32, "
                                                      "Q8_0")}});
}

// Of the child's error.
absl::Status ExportError(const std::string& name, const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnimplemented:
      return MakeError(ErrorReason::kExportUnsupported, absl::StrCat(name, ": ", status.message()));
    case absl::StatusCode::kResourceExhausted:
      return MakeError(ErrorReason::kDiskFull,
                       absl::StrCat(name, ": ", status.message(), "; free some space"));
    case absl::StatusCode::kNotFound:
      return MakeError(ErrorReason::kCheckpointNotFound,
                       absl::StrCat(name,
                                    " was removed while it was being exported: newer ones "
                                    "took its place; export another, or raise keep_last"));
    default:
      return absl::Status(status.code(), absl::StrCat(name, ": ", status.message()));
  }
}

}  // namespace

absl::StatusOr<StoredCheckpoint::File> CheckpointExporter::Export(const Request& request) {
  MILLRACE_RETURN_IF_ERROR(CheckRequest(request));
  MILLRACE_ASSIGN_OR_RETURN(const StoredCheckpoint checkpoint,
                            options_.checkpoints->Get(request.job_id, request.step));
  const std::string type = request.weight_type.empty() ? kWeightTypes[0] : request.weight_type;
  const std::string path = absl::StrCat("exports/", request.job_id, "-", checkpoint.step, "-",
                                        absl::AsciiStrToLower(type), ".gguf");
  if (auto there = options_.checkpoints->FindExport(request.job_id, checkpoint.step, path)) {
    return *there;
  }
  const std::string full = absl::StrCat(request.job_id, "/", path);
  {
    absl::MutexLock lock(&mutex_);
    if (!making_.insert(full).second) {
      return WithRetryDelay(
          MakeError(ErrorReason::kBusy,
                    absl::StrCat(path, " is being made for somebody else; try again soon")),
          absl::Seconds(1));
    }
  }
  const auto made = absl::MakeCleanup([&] {
    absl::MutexLock lock(&mutex_);
    making_.erase(full);
  });
  Request whole = request;
  whole.weight_type = type;
  return Make(whole, checkpoint, path);
}

absl::StatusOr<StoredCheckpoint::File> CheckpointExporter::Make(const Request& request,
                                                                const StoredCheckpoint& checkpoint,
                                                                const std::string& path) {
  const std::string name = absl::StrCat(JobName(request.job_id), "/checkpoints/", checkpoint.step);
  const std::string folder = options_.checkpoints->Folder(request.job_id, checkpoint.step);
  const std::string exports = options_.checkpoints->ExportsFolder(request.job_id, checkpoint.step);
  std::error_code error;
  fs::create_directory(exports, error);
  if (error) return ExportError(name, ErrnoToStatus(error.value(), "create", exports));
  const std::string full = absl::StrCat(folder, "/", path);
  const std::string temporary = full + ".writing";
  const auto remove = absl::MakeCleanup([&] {
    std::error_code ignored;
    fs::remove(temporary, ignored);
  });
  const absl::StatusOr<nlohmann::json> result =
      RunChildTask({.command = {options_.worker_program, "export", "--checkpoint", folder, "--type",
                                request.weight_type, "--name", request.job_id, "--out", temporary},
                    .on_progress =
                        [&request](const nlohmann::json& progress) {
                          if (!request.on_progress) return;
                          request.on_progress(progress.value("done", int64_t{0}),
                                              progress.value("total", int64_t{0}));
                        },
                    .cancelled = request.cancelled});
  if (!result.ok()) return ExportError(name, result.status());
  StoredCheckpoint::File file;
  file.path = path;
  file.size_bytes = result->value("size_bytes", int64_t{0});
  file.sha256 = result->value("sha256", "");
  if (std::rename(temporary.c_str(), full.c_str()) != 0) {
    return ExportError(name, ErrnoToStatus(errno, "move into place", temporary));
  }
  MILLRACE_RETURN_IF_ERROR(SyncFolder(exports));
  MILLRACE_RETURN_IF_ERROR(
      options_.checkpoints->RecordExport(request.job_id, checkpoint.step, file));
  return file;
}

}  // namespace millrace
