// A millraced of its own process, for tests.
#ifndef MILLRACE_TESTS_SERVER_DAEMON_PROCESS_H_
#define MILLRACE_TESTS_SERVER_DAEMON_PROCESS_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

extern char** environ;

namespace millrace {

// Starts `program` with its standard output in a pipe and its standard error in a file.
class DaemonProcess {
 public:
  DaemonProcess(const std::vector<std::string>& command, const std::string& stderr_path)
      : stderr_path_(stderr_path) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, stderr_path.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    std::vector<char*> arguments;
    for (const std::string& argument : command) {
      arguments.push_back(const_cast<char*>(argument.c_str()));
    }
    arguments.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    stdout_ = ends[0];
  }

  ~DaemonProcess() {
    if (pid_ > 0) {
      Signal(SIGKILL);
      Wait();
    }
    close(stdout_);
  }

  // The next line of its output; what there is when it has closed it.
  std::string ReadLine() {
    std::string line;
    char c;
    while (read(stdout_, &c, 1) == 1 && c != '\n') line.push_back(c);
    return line;
  }

  void Signal(int signal) { kill(pid_, signal); }

  // Its exit code; -1 when a signal ended it.
  int Wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  pid_t pid() const { return pid_; }

  std::string Stderr() const {
    std::ifstream file(stderr_path_);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

 private:
  const std::string stderr_path_;
  pid_t pid_ = -1;
  int stdout_ = -1;
};

}  // namespace millrace

#endif  // MILLRACE_TESTS_SERVER_DAEMON_PROCESS_H_
