// The commands about models.
#ifndef MILLRACE_CLIENT_CLI_MODEL_COMMANDS_H_
#define MILLRACE_CLIENT_CLI_MODEL_COMMANDS_H_

#include <string>

#include "absl/status/statusor.h"
#include "client/cli/session.h"

namespace millrace {

// An empty `id` is made of the path.
absl::StatusOr<int> UploadModelCommand(const Session& session, const std::string& id,
                                       const std::string& path);
// `path` is the daemon's.
absl::StatusOr<int> RegisterModelCommand(const Session& session, const std::string& id,
                                         const std::string& path);
absl::StatusOr<int> ListModels(const Session& session);
absl::StatusOr<int> ShowModel(const Session& session, const std::string& id);
absl::StatusOr<int> DeleteModel(const Session& session, const std::string& id);

}  // namespace millrace

#endif  // MILLRACE_CLIENT_CLI_MODEL_COMMANDS_H_
