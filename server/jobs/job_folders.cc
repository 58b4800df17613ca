#include "server/jobs/job_folders.h"

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"

namespace millrace {

namespace fs = std::filesystem;

absl::StatusOr<std::string> MoveJobToTrash(const DataPaths& paths, const std::string& job_id) {
  std::error_code error;
  fs::create_directories(paths.Trash(), error);
  if (error) return ErrnoToStatus(error.value(), "create", paths.Trash());
  const std::string trash =
      absl::StrCat(paths.Trash(), "/", job_id, "-", absl::ToUnixNanos(absl::Now()));
  fs::rename(paths.Job(job_id), trash, error);
  if (error == std::errc::no_such_file_or_directory) return "";
  if (error) return ErrnoToStatus(error.value(), "move to the trash", paths.Job(job_id));
  MILLRACE_RETURN_IF_ERROR(SyncFolder(paths.Jobs()));
  return trash;
}

absl::Status RemoveFolder(const std::string& folder) {
  if (folder.empty()) return absl::OkStatus();
  std::error_code error;
  fs::remove_all(folder, error);
  if (error) return ErrnoToStatus(error.value(), "remove", folder);
  return absl::OkStatus();
}

absl::Status EmptyTrash(const DataPaths& paths) { return RemoveFolder(paths.Trash()); }

}  // namespace millrace
