// The commands about datasets.
#ifndef MILLRACE_CLIENT_CLI_DATASET_COMMANDS_H_
#define MILLRACE_CLIENT_CLI_DATASET_COMMANDS_H_

#include <string>

#include "absl/status/statusor.h"
#include "client/cli/session.h"

namespace millrace {

absl::StatusOr<int> UploadDatasetCommand(const Session& session, const std::string& id,
                                         const std::string& path);
absl::StatusOr<int> ListDatasets(const Session& session);
absl::StatusOr<int> ShowDataset(const Session& session, const std::string& id);
absl::StatusOr<int> DeleteDataset(const Session& session, const std::string& id);

}  // namespace millrace

#endif  // MILLRACE_CLIENT_CLI_DATASET_COMMANDS_H_
