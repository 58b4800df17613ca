// The lock that keeps a job from running twice: an flock(2) on {job_dir}/lock. The file holds the
// process id of the one that has the lock, as decimal text.
//
// The lock belongs to an open file, not to a process: the daemon takes it, hands the open file to
// the worker that it starts, and closes its own, so that there is no moment at which a worker runs
// and the lock is free.
#ifndef MILLRACE_SERVER_WORKER_JOB_LOCK_H_
#define MILLRACE_SERVER_WORKER_JOB_LOCK_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/worker/unique_fd.h"

namespace millrace {

class JobLock {
 public:
  // Takes the lock and empties the file. UNAVAILABLE when another process has it; the message
  // names its id.
  static absl::StatusOr<JobLock> Take(const std::string& job_dir);

  // Continues a lock that was handed over as open file `fd`.
  static JobLock Adopt(int fd) { return JobLock(UniqueFd(fd)); }

  // Writes the id of the process that has the lock from now on.
  absl::Status WriteOwner(int pid);

  int fd() const { return fd_.get(); }

 private:
  explicit JobLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

// A process that has the lock of a job, held fast by a pidfd.
struct JobLockOwner {
  int pid;
  UniqueFd pidfd;
};

// The process that has the lock of `job_dir`, or none when it is free. Waits up to `timeout` for a
// process that has just begun to write its id; DEADLINE_EXCEEDED after that.
absl::StatusOr<std::optional<JobLockOwner>> FindJobLockOwner(const std::string& job_dir,
                                                             absl::Duration timeout);

}  // namespace millrace

#endif  // MILLRACE_SERVER_WORKER_JOB_LOCK_H_
