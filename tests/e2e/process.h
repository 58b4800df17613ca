// Programs under test: started, signalled, awaited with a deadline.
#ifndef MILLRACE_TESTS_E2E_PROCESS_H_
#define MILLRACE_TESTS_E2E_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace millrace {

// Long enough for a slow box under load; only a failing test waits so long.
inline constexpr absl::Duration kPatience = absl::Seconds(60);

// Checks `condition` often until it holds; false when it does not within `patience`. For what
// cannot be waited for in another way, such as the end of a process that is no child.
bool Eventually(const std::function<bool()>& condition, absl::Duration patience = kPatience);

inline constexpr int kNoPrivateDisk = 126;

struct ProcessOptions {
  // Added to the environment.
  std::vector<std::pair<std::string, std::string>> environment;
  // No file may grow beyond this; 0 is no limit. A disk that fills up in the middle of a file.
  int64_t file_size_limit = 0;
  // Gives the program, and what it starts, a disk of this size at `disk_folder`, which must be
  // there; 0 is none. Where the system permits no private mounts the program ends with
  // kNoPrivateDisk.
  int64_t disk_bytes = 0;
  std::string disk_folder;
};

class Process {
 public:
  // The output goes to files in a folder of its own.
  explicit Process(const std::vector<std::string>& command, const ProcessOptions& options = {});
  // Kills it if it still runs.
  ~Process();
  Process(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // What it has written so far.
  std::string Output() const;
  std::string Errors() const;

  void Signal(int signal) const;
  // The exit code, 128 + N when signal N ended it, or -1 when it still runs after `patience`.
  int Wait(absl::Duration patience = kPatience);
  bool IsRunning();
  // True once the output contains `text`; false when it ends or time passes first.
  bool WaitForOutput(const std::string& text, absl::Duration patience = kPatience);

 private:
  std::string folder_;
  pid_t pid_ = -1;
  bool reaped_ = false;
  int exit_code_ = -1;
};

struct RunResult {
  int exit_code;
  std::string output;
  std::string errors;
};

// Runs a program to its end.
RunResult RunProgram(const std::vector<std::string>& command, const ProcessOptions& options = {},
                     absl::Duration patience = kPatience);

// Ids of processes, but for this one, whose command line contains `text`.
std::vector<pid_t> ProcessesWith(const std::string& text);

// The path of a program of this workspace, such as `server/millraced`.
std::string ProgramPath(const std::string& target);

std::string ReadWholeFile(const std::string& path);
void WriteWholeFile(const std::string& path, const std::string& text);

}  // namespace millrace

#endif  // MILLRACE_TESTS_E2E_PROCESS_H_
