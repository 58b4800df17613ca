// Sending a text file, or a folder of them, to the daemon.
#ifndef MILLRACE_CLIENT_LIB_DATASET_UPLOAD_H_
#define MILLRACE_CLIENT_LIB_DATASET_UPLOAD_H_

#include <string>

#include "absl/status/statusor.h"
#include "client/lib/connection.h"
#include "client/lib/transfer.h"

namespace millrace {

// Makes the dataset `datasets/{dataset_id}` of the file or folder `path` and returns it READY. Each
// file goes on at the byte that the daemon has safely: after a broken connection by itself, after
// an interruption or a full disk when called again. Hidden files are left out; names in the dataset
// are relative to `path`. A dataset that is there already with the same content is returned as it
// is.
//
// NotFound and InvalidArgument for `path`; Aborted when a file changes meanwhile; AlreadyExists,
// ResourceExhausted and InvalidArgument (content) from the daemon.
absl::StatusOr<v1::Dataset> UploadDataset(Connection& connection, const std::string& dataset_id,
                                          const std::string& path, const TransferOptions& options);

}  // namespace millrace

#endif  // MILLRACE_CLIENT_LIB_DATASET_UPLOAD_H_
