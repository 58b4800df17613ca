// Starting, signalling and awaiting worker processes.
#ifndef MILLRACE_SERVER_WORKER_WORKER_PROCESS_H_
#define MILLRACE_SERVER_WORKER_WORKER_PROCESS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/worker/unique_fd.h"

namespace millrace {

// The number that the lock's open file has in the worker; of one that serves a model, the pipe that
// tells it that the daemon lives.
inline constexpr int kLockFd = 3;

// A process, held by a pidfd so that its id is never mistaken for another's. Its destruction
// neither ends nor reaps it.
class WorkerProcess {
 public:
  // Starts `command` in a session of its own, so that it outlives this process and terminals: input
  // from /dev/null, output and errors appended to `log_path`, `lock_fd` as kLockFd, nothing else
  // open, no signal blocked or ignored.
  static absl::StatusOr<WorkerProcess> Start(const std::vector<std::string>& command,
                                             const std::string& log_path, int lock_fd);

  // A process that somebody else started.
  static WorkerProcess Adopt(int pid, UniqueFd pidfd) {
    return WorkerProcess(pid, std::move(pidfd));
  }

  int pid() const { return pid_; }
  // Readable when the process has ended.
  int pidfd() const { return pidfd_.get(); }

  // No effect on a process that has ended.
  void Signal(int signal) const;

  // How a process that has ended did so, as waitid(2) tells it; none for one that another process
  // started. Call once, after it has ended.
  struct ExitStatus {
    // Exit code, or signal.
    bool signalled = false;
    int value = 0;
  };
  std::optional<ExitStatus> Reap() const;

 private:
  WorkerProcess(int pid, UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}

  int pid_;
  UniqueFd pidfd_;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_WORKER_WORKER_PROCESS_H_
