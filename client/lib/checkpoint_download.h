// Fetching a checkpoint into a local folder.
#ifndef MILLRACE_CLIENT_LIB_CHECKPOINT_DOWNLOAD_H_
#define MILLRACE_CLIENT_LIB_CHECKPOINT_DOWNLOAD_H_

#include <string>

#include "absl/status/status.h"
#include "client/lib/connection.h"
#include "client/lib/transfer.h"

namespace millrace {

// Fetches all files of `name` (`jobs/{id}/checkpoints/{step}`) into `directory`, which must not be
// there yet. They are gathered in `directory`.partial, each checked against its SHA-256, and that
// folder is renamed at the end; a call after an interruption goes on where that one ended.
// AlreadyExists for the folder; NotFound; ResourceExhausted when the local disk is full; DataLoss
// when a file is not what the daemon says it is, even after fetching it again.
absl::Status DownloadCheckpoint(Connection& connection, const std::string& name,
                                const std::string& directory, const TransferOptions& options);

}  // namespace millrace

#endif  // MILLRACE_CLIENT_LIB_CHECKPOINT_DOWNLOAD_H_
