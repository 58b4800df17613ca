#include "server/worker/job_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"

namespace millrace {
namespace {

std::string LockPath(const std::string& job_dir) { return absl::StrCat(job_dir, "/lock"); }

// 0 when none is written.
int ReadOwner(int fd) {
  char text[32];
  const ssize_t size = pread(fd, text, sizeof(text), 0);
  int pid = 0;
  if (size <= 0 || text[size - 1] != '\n' ||
      !absl::SimpleAtoi(absl::StripAsciiWhitespace(absl::string_view(text, size)), &pid)) {
    return 0;
  }
  return pid;
}

// Whether another open file has the lock. A lock taken by the question itself is given back.
absl::StatusOr<bool> IsLocked(int fd, const std::string& path) {
  if (flock(fd, LOCK_SH | LOCK_NB) == 0) {
    flock(fd, LOCK_UN);
    return false;
  }
  if (errno == EWOULDBLOCK) return true;
  return ErrnoToStatus(errno, "lock", path);
}

int OpenPidfd(int pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

}  // namespace

absl::StatusOr<JobLock> JobLock::Take(const std::string& job_dir) {
  const std::string path = LockPath(job_dir);
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd.valid()) return ErrnoToStatus(errno, "open", path);
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoToStatus(errno, "lock", path);
    return absl::UnavailableError(absl::StrCat(job_dir, " is in use by process ",
                                               ReadOwner(fd.get()), "; wait until it has ended"));
  }
  if (ftruncate(fd.get(), 0) != 0) return ErrnoToStatus(errno, "truncate", path);
  return JobLock(std::move(fd));
}

absl::Status JobLock::WriteOwner(int pid) {
  const std::string text = absl::StrCat(pid, "\n");
  if (pwrite(fd_.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    return ErrnoToStatus(errno, "write", "lock file");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<JobLockOwner>> FindJobLockOwner(const std::string& job_dir,
                                                             absl::Duration timeout) {
  const std::string path = LockPath(job_dir);
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.valid()) {
    if (errno == ENOENT) return std::nullopt;
    return ErrnoToStatus(errno, "open", path);
  }
  for (const absl::Time deadline = absl::Now() + timeout;; absl::SleepFor(absl::Milliseconds(5))) {
    MILLRACE_ASSIGN_OR_RETURN(const bool locked, IsLocked(fd.get(), path));
    if (!locked) return std::nullopt;
    if (const int pid = ReadOwner(fd.get()); pid > 0) {
      UniqueFd pidfd(OpenPidfd(pid));
      // The id is that of the owner only if the lock was not given up before it was looked up: a
      // process id is used again once its process is gone.
      MILLRACE_ASSIGN_OR_RETURN(const bool still_locked, IsLocked(fd.get(), path));
      if (pidfd.valid() && still_locked && ReadOwner(fd.get()) == pid) {
        return std::optional<JobLockOwner>(JobLockOwner{pid, std::move(pidfd)});
      }
      if (!still_locked) return std::nullopt;
    }
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(path, " is locked by a process that does not say which it is"));
    }
  }
}

}  // namespace millrace
