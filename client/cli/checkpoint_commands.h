// The commands about checkpoints.
#ifndef MILLRACE_CLIENT_CLI_CHECKPOINT_COMMANDS_H_
#define MILLRACE_CLIENT_CLI_CHECKPOINT_COMMANDS_H_

#include <string>

#include "absl/status/statusor.h"
#include "client/cli/session.h"

namespace millrace {

absl::StatusOr<int> ListCheckpoints(const Session& session, const std::string& job);

// `step` is a number, `latest` or `best`.
absl::StatusOr<int> ShowCheckpoint(const Session& session, const std::string& job,
                                   const std::string& step);

// Into `directory`; when that is empty, into `JOB-STEP` below the current folder.
absl::StatusOr<int> DownloadCheckpointCommand(const Session& session, const std::string& job,
                                              const std::string& step,
                                              const std::string& directory);

struct ExportArgs {
  std::string job;
  std::string step = "latest";  // a number, `latest` or `best`
  std::string format = "gguf";  // or `hf`, a download of the folder
  std::string weight_type;      // of `gguf`; the daemon's default when empty
  std::string out;              // a file, or the folder of `hf`; made of job and step when empty
};
absl::StatusOr<int> ExportCheckpointCommand(const Session& session, const ExportArgs& args);

}  // namespace millrace

#endif  // MILLRACE_CLIENT_CLI_CHECKPOINT_COMMANDS_H_
