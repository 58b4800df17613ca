#include "server/data_dir_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"

namespace millrace {
namespace {

absl::Status MakePrivateFolder(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return absl::OkStatus();
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoToStatus(errno, "create", path);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<DataDirLock>> DataDirLock::Acquire(const DataPaths& paths) {
  MILLRACE_RETURN_IF_ERROR(MakePrivateFolder(paths.root()));
  MILLRACE_RETURN_IF_ERROR(MakePrivateFolder(paths.Jobs()));
  const int fd = open(paths.Lock().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return ErrnoToStatus(errno, "open", paths.Lock());
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    close(fd);
    if (error != EWOULDBLOCK) return ErrnoToStatus(error, "lock", paths.Lock());
    const absl::StatusOr<std::string> pid = ReadFile(paths.Lock());
    return absl::FailedPreconditionError(
        absl::StrCat("data_dir: ", paths.root(), " is in use by another millraced",
                     pid.ok() && !pid->empty() ? absl::StrCat(" (process ", *pid, ")") : "",
                     "; stop that one, or give this one another --data_dir"));
  }
  std::unique_ptr<DataDirLock> lock(new DataDirLock(fd));
  const std::string pid = absl::StrCat(getpid());
  if (ftruncate(fd, 0) != 0 ||
      pwrite(fd, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return ErrnoToStatus(errno, "write", paths.Lock());
  }
  return lock;
}

DataDirLock::~DataDirLock() { close(fd_); }

}  // namespace millrace
