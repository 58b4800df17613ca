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

constexpr char kDeletedMark[] = "deleted";

// Moves `folder` into `target`, under a name of its own. Empty when there is no such folder.
absl::StatusOr<std::string> MoveInto(const std::string& target, const std::string& folder,
                                     const std::string& name) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(folder, error))) {
    if (error && error != std::errc::no_such_file_or_directory) {
      return ErrnoToStatus(error.value(), "read", folder);
    }
    return "";
  }
  fs::create_directories(target, error);
  if (error) return ErrnoToStatus(error.value(), "create", target);
  const std::string moved = absl::StrCat(target, "/", name, "-", absl::ToUnixNanos(absl::Now()));
  fs::rename(folder, moved, error);
  if (error) return ErrnoToStatus(error.value(), "move away", folder);
  MILLRACE_RETURN_IF_ERROR(SyncFolder(target));
  MILLRACE_RETURN_IF_ERROR(SyncFolder(fs::path(folder).parent_path().string()));
  return moved;
}

}  // namespace

absl::Status MarkDeleted(const DataPaths& paths, const std::string& job_id) {
  std::error_code error;
  if (!fs::exists(paths.Job(job_id), error)) return absl::OkStatus();
  return WriteFileAtomically(absl::StrCat(paths.Job(job_id), "/", kDeletedMark), "");
}

absl::StatusOr<std::string> MoveJobToTrash(const DataPaths& paths, const std::string& job_id) {
  return MoveInto(paths.Trash(), paths.Job(job_id), job_id);
}

absl::StatusOr<std::string> SetAside(const DataPaths& paths, const std::string& job_id) {
  return MoveInto(paths.Unclaimed(), paths.Job(job_id), job_id);
}

absl::Status RemovePrepared(const DataPaths& paths, const std::string& job_id) {
  // By way of the trash, so that no half of it is found by a later attempt.
  MILLRACE_ASSIGN_OR_RETURN(const std::string trash, MoveInto(paths.Trash(), paths.Prepared(job_id),
                                                              absl::StrCat(job_id, "-prepared")));
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
  if (!fs::exists(paths.Jobs(), error)) return absl::OkStatus();
  std::vector<std::string> left;
  for (fs::directory_iterator entry(paths.Jobs(), error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code none;
    const bool marked = fs::exists(entry->path() / kDeletedMark, none);
    if (marked && job_ids.count(entry->path().filename().string()) == 0) {
      left.push_back(entry->path());
    }
  }
  if (error) return ErrnoToStatus(error.value(), "read", paths.Jobs());
  for (const std::string& folder : left) MILLRACE_RETURN_IF_ERROR(RemoveFolder(folder));
  return absl::OkStatus();
}

}  // namespace millrace
