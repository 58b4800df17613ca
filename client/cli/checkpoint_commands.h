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

}  // namespace millrace

#endif  // MILLRACE_CLIENT_CLI_CHECKPOINT_COMMANDS_H_
