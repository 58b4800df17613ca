#include "server/jobs/job_folders.h"

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"

namespace millrace {

namespace fs = std::filesystem;

namespace {

// `name` is for whoever looks into the trash.
absl::StatusOr<std::string> MoveToTrash(const DataPaths& paths, const std::string& folder,
                                        const std::string& name) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(folder, error))) {
    if (error && error != std::errc::no_such_file_or_directory) {
      return ErrnoToStatus(error.value(), "read", folder);
    }
    return "";
  }
  fs::create_directories(paths.Trash(), error);
  if (error) return ErrnoToStatus(error.value(), "create", paths.Trash());
  const std::string trash =
      absl::StrCat(paths.Trash(), "/", name, "-", absl::ToUnixNanos(absl::Now()));
  fs::rename(folder, trash, error);
  if (error) return ErrnoToStatus(error.value(), "move to the trash", folder);
  MILLRACE_RETURN_IF_ERROR(SyncFolder(fs::path(folder).parent_path().string()));
  return trash;
}

}  // namespace

absl::StatusOr<std::string> MoveJobToTrash(const DataPaths& paths, const std::string& job_id) {
  return MoveToTrash(paths, paths.Job(job_id), job_id);
}

absl::Status RemovePrepared(const DataPaths& paths, const std::string& job_id) {
  // By way of the trash, so that no half of it is found by a later attempt.
  MILLRACE_ASSIGN_OR_RETURN(
      const std::string trash,
      MoveToTrash(paths, paths.Prepared(job_id), absl::StrCat(job_id, "-prepared")));
  return RemoveFolder(trash);
}

absl::Status RemoveFolder(const std::string& folder) {
  if (folder.empty()) return absl::OkStatus();
  std::error_code error;
  fs::remove_all(folder, error);
  if (error) return ErrnoToStatus(error.value(), "remove", folder);
  return absl::OkStatus();
}

absl::Status RemoveLeftovers(const DataPaths& paths, const std::set<std::string>& job_ids) {
  MILLRACE_RETURN_IF_ERROR(RemoveFolder(paths.Trash()));
  std::error_code error;
  if (job_ids.empty() || !fs::exists(paths.Jobs(), error)) return absl::OkStatus();
  std::vector<std::string> left;
  for (fs::directory_iterator entry(paths.Jobs(), error), end; !error && entry != end;
       entry.increment(error)) {
    if (job_ids.count(entry->path().filename().string()) == 0) left.push_back(entry->path());
  }
  if (error) return ErrnoToStatus(error.value(), "read", paths.Jobs());
  for (const std::string& folder : left) MILLRACE_RETURN_IF_ERROR(RemoveFolder(folder));
  return absl::OkStatus();
}

}  // namespace millrace
