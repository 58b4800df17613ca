// Fetching a checkpoint into a local folder.
#ifndef MILLRACE_CLIENT_LIB_CHECKPOINT_DOWNLOAD_H_
#define MILLRACE_CLIENT_LIB_CHECKPOINT_DOWNLOAD_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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

// Has the daemon write a checkpoint in another format, and waits for it; `on_progress` hears of the
// bytes written there. The file of the checkpoint that DownloadExport then fetches.
absl::StatusOr<v1::CheckpointFile> ExportCheckpoint(Connection& connection,
                                                    const v1::ExportCheckpointRequest& request,
                                                    const TransferOptions& options);

// Fetches one file of the checkpoint `name` to `path`, which it replaces when it is whole and its
// SHA-256 is right; until then it is `path`.partial, where a call after an interruption goes on.
absl::Status DownloadExport(Connection& connection, const std::string& name,
                            const v1::CheckpointFile& file, const std::string& path,
                            const TransferOptions& options);

}  // namespace millrace

#endif  // MILLRACE_CLIENT_LIB_CHECKPOINT_DOWNLOAD_H_
