#include "server/worker/child_task.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"
#include "server/worker/unique_fd.h"

extern char** environ;

namespace millrace {
namespace {

constexpr int kPollMilliseconds = 200;
constexpr size_t kMostLineBytes = size_t{1} << 20;
constexpr size_t kKeptErrorBytes = 2000;

struct Pipe {
  UniqueFd read, write;
};

absl::StatusOr<Pipe> MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoToStatus(errno, "make", "a pipe");
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

absl::StatusOr<pid_t> Spawn(const std::vector<std::string>& command, int out, int error) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, error, STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> arguments;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  pid_t pid = 0;
  const int failure =
      posix_spawn(&pid, command[0].c_str(), &actions, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (failure != 0) return ErrnoToStatus(failure, "start", command[0]);
  return pid;
}

class Conversation {
 public:
  explicit Conversation(const ChildTask& task) : task_(task) {}

  // Takes what the process writes until it has closed both ends.
  absl::Status Listen(int out, int error) {
    std::array<pollfd, 2> ends = {pollfd{out, POLLIN, 0}, pollfd{error, POLLIN, 0}};
    while (ends[0].fd >= 0 || ends[1].fd >= 0) {
      if (task_.cancelled && task_.cancelled()) return absl::CancelledError("cancelled");
      if (poll(ends.data(), ends.size(), kPollMilliseconds) < 0 && errno != EINTR) {
        return ErrnoToStatus(errno, "listen to", task_.command[0]);
      }
      for (pollfd& end : ends) {
        if (end.fd < 0 || end.revents == 0) continue;
        char bytes[4096];
        const ssize_t count = read(end.fd, bytes, sizeof(bytes));
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) {
          end.fd = -1;
        } else if (end.fd == out) {
          TakeOutput({bytes, static_cast<size_t>(count)});
        } else {
          TakeError({bytes, static_cast<size_t>(count)});
        }
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<nlohmann::json> Outcome(int wait_status) {
    if (outcome_) return *std::move(outcome_);
    const std::string end = WIFSIGNALED(wait_status)
                                ? absl::StrCat("was ended by signal ", WTERMSIG(wait_status))
                                : absl::StrCat("ended with code ", WEXITSTATUS(wait_status));
    return absl::InternalError(absl::StrCat(task_.command[0], " ", task_.command[1], " ", end,
                                            error_.empty() ? "" : ": ", error_));
  }

 private:
  void TakeOutput(absl::string_view bytes) {
    absl::StrAppend(&line_, bytes);
    for (size_t end = line_.find('\n'); end != std::string::npos; end = line_.find('\n')) {
      TakeLine(line_.substr(0, end));
      line_.erase(0, end + 1);
    }
    if (line_.size() > kMostLineBytes) line_.clear();
  }

  void TakeLine(const std::string& line) {
    const nlohmann::json said = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!said.is_object()) return;
    if (const auto progress = said.find("progress"); progress != said.end()) {
      if (task_.on_progress) task_.on_progress(*progress);
    } else if (const auto result = said.find("result"); result != said.end()) {
      outcome_ = *result;
    } else if (const auto error = said.find("error"); error != said.end() && error->is_object()) {
      outcome_ = absl::Status(static_cast<absl::StatusCode>(error->value("code", 13)),
                              error->value("message", ""));
    }
  }

  void TakeError(absl::string_view bytes) {
    absl::StrAppend(&error_, bytes);
    if (error_.size() > kKeptErrorBytes) error_.erase(0, error_.size() - kKeptErrorBytes);
  }

  const ChildTask& task_;
  std::string line_;
  std::string error_;
  std::optional<absl::StatusOr<nlohmann::json>> outcome_;
};

}  // namespace

absl::StatusOr<nlohmann::json> RunChildTask(const ChildTask& task) {
  MILLRACE_ASSIGN_OR_RETURN(Pipe out, MakePipe());
  MILLRACE_ASSIGN_OR_RETURN(Pipe error, MakePipe());
  MILLRACE_ASSIGN_OR_RETURN(const pid_t pid,
                            Spawn(task.command, out.write.get(), error.write.get()));
  out.write = UniqueFd();
  error.write = UniqueFd();
  Conversation conversation(task);
  const absl::Status heard = conversation.Listen(out.read.get(), error.read.get());
  if (!heard.ok()) kill(pid, SIGKILL);
  int wait_status = 0;
  while (waitpid(pid, &wait_status, 0) < 0 && errno == EINTR) {
  }
  if (!heard.ok()) return heard;
  return conversation.Outcome(wait_status);
}

}  // namespace millrace
