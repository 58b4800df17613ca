// The commands about jobs. Each takes what its options were parsed into, and returns the exit code.
#ifndef MILLRACE_CLIENT_CLI_JOB_COMMANDS_H_
#define MILLRACE_CLIENT_CLI_JOB_COMMANDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/session.h"

namespace millrace {

struct SubmitArgs {
  // `-` is standard input.
  std::string file;
  // Empty: the daemon chooses.
  std::string id;
  bool watch = false;
  bool dry_run = false;
};
absl::StatusOr<int> Submit(const Session& session, const SubmitArgs& args);

struct PlanArgs {
  // `-` is standard input.
  std::string file;
  // A device profile; empty is the daemon's box.
  std::string device;
  // 0: the daemon's.
  int64_t host_memory_bytes = 0;
  // Where to write the predicted step; empty for nowhere.
  std::string trace_file;
};
absl::StatusOr<int> PlanJob(const Session& session, const PlanArgs& args);

struct ListJobsArgs {
  // Names of states in any case; empty is all.
  std::vector<std::string> states;
  // 0 is all.
  int limit = 50;
};
absl::StatusOr<int> ListJobs(const Session& session, const ListJobsArgs& args);

absl::StatusOr<int> ShowJob(const Session& session, const std::string& job);

struct WatchArgs {
  std::string job;
  int64_t after_sequence = 0;
};
absl::StatusOr<int> Watch(const Session& session, const WatchArgs& args);

struct LogsArgs {
  std::string job;
  bool follow = false;
  int attempt = 0;
  int tail_lines = 0;
};
absl::StatusOr<int> Logs(const Session& session, const LogsArgs& args);

struct TraceArgs {
  std::string job;
  // 0 is the last trace.
  int64_t first_step = 0;
  // Empty: JOB-steps-A-B.json here.
  std::string out;
};
absl::StatusOr<int> FetchTrace(const Session& session, const TraceArgs& args);

// `wait`: until the job is in the state that was asked for.
absl::StatusOr<int> PauseJob(const Session& session, const std::string& job, bool wait);
absl::StatusOr<int> ResumeJob(const Session& session, const std::string& job);
absl::StatusOr<int> CancelJob(const Session& session, const std::string& job, bool wait);
absl::StatusOr<int> DeleteJob(const Session& session, const std::string& job);

}  // namespace millrace

#endif  // MILLRACE_CLIENT_CLI_JOB_COMMANDS_H_
