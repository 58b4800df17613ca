#include "tests/e2e/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

std::string NewFolder() {
  std::string pattern = absl::StrCat(::testing::TempDir(), "/process-XXXXXX");
  if (mkdtemp(pattern.data()) == nullptr) abort();
  return pattern;
}

void WriteTo(const char* path, const std::string& text) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0 || write(fd, text.data(), text.size()) < 0) _exit(kNoPrivateDisk);
  close(fd);
}

// In a mount namespace of its own, which ends with its last process.
void MountPrivateDisk(const ProcessOptions& options) {
  std::string uid_map = absl::StrCat(geteuid(), " ", geteuid(), " 1");
  std::string gid_map = absl::StrCat(getegid(), " ", getegid(), " 1");
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) _exit(kNoPrivateDisk);
  WriteTo("/proc/self/setgroups", "deny");
  WriteTo("/proc/self/uid_map", uid_map);
  WriteTo("/proc/self/gid_map", gid_map);
  std::string size = absl::StrCat("size=", options.disk_bytes);
  if (mount("tmpfs", options.disk_folder.c_str(), "tmpfs", 0, size.c_str()) != 0) {
    _exit(kNoPrivateDisk);
  }
}

[[noreturn]] void Become(const std::vector<std::string>& command, const ProcessOptions& options,
                         const std::string& folder) {
  int in = open("/dev/null", O_RDONLY);
  int out = open((folder + "/out").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  int error = open((folder + "/error").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(error, STDERR_FILENO);
  for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
  if (options.disk_bytes > 0) MountPrivateDisk(options);
  if (options.file_size_limit > 0) {
    // Else the first write beyond it would end the program instead of failing.
    signal(SIGXFSZ, SIG_IGN);
    rlimit limit = {static_cast<rlim_t>(options.file_size_limit),
                    static_cast<rlim_t>(options.file_size_limit)};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  std::vector<char*> arguments;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  execv(arguments[0], arguments.data());
  _exit(127);
}

}  // namespace

bool Eventually(const std::function<bool()>& condition, absl::Duration patience) {
  absl::Time deadline = absl::Now() + patience;
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(2));
  }
  return true;
}

Process::Process(const std::vector<std::string>& command, const ProcessOptions& options)
    : folder_(NewFolder()) {
  // So that reading before the first write finds them.
  WriteWholeFile(folder_ + "/out", "");
  WriteWholeFile(folder_ + "/error", "");
  pid_ = fork();
  if (pid_ == 0) Become(command, options, folder_);
}

Process::~Process() {
  if (IsRunning()) {
    Signal(SIGKILL);
    Wait();
  }
}

std::string Process::Output() const { return ReadWholeFile(folder_ + "/out"); }
std::string Process::Errors() const { return ReadWholeFile(folder_ + "/error"); }

void Process::Signal(int signal) const {
  if (!reaped_) kill(pid_, signal);
}

bool Process::IsRunning() {
  if (reaped_) return false;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return true;
  reaped_ = true;
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return false;
}

int Process::Wait(absl::Duration patience) {
  return Eventually([this] { return !IsRunning(); }, patience) ? exit_code_ : -1;
}

bool Process::WaitForOutput(const std::string& text, absl::Duration patience) {
  bool found = false;
  Eventually(
      [&] {
        bool running = IsRunning();
        found = absl::StrContains(Output(), text);
        return found || !running;
      },
      patience);
  return found;
}

RunResult RunProgram(const std::vector<std::string>& command, const ProcessOptions& options,
                     absl::Duration patience) {
  Process process(command, options);
  int code = process.Wait(patience);
  return {code, process.Output(), process.Errors()};
}

std::vector<pid_t> ProcessesWith(const std::string& text) {
  std::vector<pid_t> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    int pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid) || pid == getpid()) continue;
    // A process may end while it is looked at; its command line is then empty.
    if (absl::StrContains(ReadWholeFile(entry.path() / "cmdline"), text)) found.push_back(pid);
  }
  return found;
}

std::string ProgramPath(const std::string& target) {
  // Bazel runs a test in its runfiles.
  return fs::absolute(target).string();
}

std::string ReadWholeFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void WriteWholeFile(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

}  // namespace millrace
