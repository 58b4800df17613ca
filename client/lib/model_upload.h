// Sending a model to the daemon.
#ifndef MILLRACE_CLIENT_LIB_MODEL_UPLOAD_H_
#define MILLRACE_CLIENT_LIB_MODEL_UPLOAD_H_

#include <string>

#include "absl/status/statusor.h"
#include "client/lib/connection.h"
#include "client/lib/model_files.h"
#include "client/lib/transfer.h"

namespace millrace {

// Makes the model `models/{model_id}` of `files` (ListModelFiles) at `path` and returns it READY.
// Each file goes on at the byte that the daemon has safely, as in UploadDataset
// (dataset_upload.h), whose errors these are too.
absl::StatusOr<v1::Model> UploadModel(Connection& connection, const std::string& model_id,
                                      const std::string& path, const ModelFiles& files,
                                      const TransferOptions& options);

}  // namespace millrace

#endif  // MILLRACE_CLIENT_LIB_MODEL_UPLOAD_H_
