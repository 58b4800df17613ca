#include "server/worker/worker_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"

namespace millrace {
namespace {

// What posix_spawn wants, freed with its owner.
struct SpawnSetup {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  SpawnSetup() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnSetup() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
};

}  // namespace

absl::StatusOr<WorkerProcess> WorkerProcess::Start(const std::vector<std::string>& command,
                                                   const std::string& log_path, int lock_fd) {
  UniqueFd log(open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!log.valid()) return ErrnoToStatus(errno, "open", log_path);

  SpawnSetup setup;
  posix_spawn_file_actions_addopen(&setup.actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&setup.actions, log.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&setup.actions, log.get(), STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&setup.actions, lock_fd, kLockFd);
  posix_spawn_file_actions_addclosefrom_np(&setup.actions, kLockFd + 1);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&setup.attributes, &none);
  posix_spawnattr_setsigdefault(&setup.attributes, &all);
  posix_spawnattr_setflags(&setup.attributes,
                           POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

  std::vector<char*> arguments;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, command[0].c_str(), &setup.actions, &setup.attributes,
                                arguments.data(), environ);
  if (error != 0) return ErrnoToStatus(error, "start", command[0]);
  UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd.valid()) {
    const absl::Status status = ErrnoToStatus(errno, "watch", absl::StrCat("process ", pid));
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return status;
  }
  return WorkerProcess(pid, std::move(pidfd));
}

void WorkerProcess::Signal(int signal) const {
  syscall(SYS_pidfd_send_signal, pidfd_.get(), signal, nullptr, 0);
}

std::optional<WorkerProcess::ExitStatus> WorkerProcess::Reap() const {
  siginfo_t info = {};
  if (waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED) != 0) return std::nullopt;
  return ExitStatus{.signalled = info.si_code != CLD_EXITED, .value = info.si_status};
}

}  // namespace millrace
