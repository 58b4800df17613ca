// Receiving a file that a client sends in messages: datasets and models alike.
#ifndef MILLRACE_SERVER_RPC_RECEIVE_FILE_H_
#define MILLRACE_SERVER_RPC_RECEIVE_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/status_macros.h"
#include "grpcpp/grpcpp.h"
#include "server/base/errors.h"
#include "server/blobs/file_upload.h"
#include "server/observe/metrics.h"
#include "server/rpc/transfer_slots.h"

namespace millrace {

// Takes a header, opens the upload that it names with `open(header)`, and appends what follows.
// `kind` is the metric's label.
template <typename Request, typename Response, typename Open>
absl::Status ReceiveFile(grpc::ServerReader<Request>& reader, TransferSlots& slots,
                         Metrics* metrics, const std::string& kind, Open open, Response* response) {
  MILLRACE_ASSIGN_OR_RETURN(const TransferSlots::Slot slot, slots.Take());
  Request request;
  if (!reader.Read(&request) || !request.has_header()) {
    return MakeFieldError(ErrorReason::kRequestInvalid,
                          {{"header", "must be the first message of an upload"}});
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<FileUpload> upload, open(request.header()));
  while (reader.Read(&request)) {
    if (request.has_header()) {
      return MakeFieldError(ErrorReason::kRequestInvalid,
                            {{"header", "must be the first message only; send data after it"}});
    }
    MILLRACE_RETURN_IF_ERROR(upload->Append(request.data()));
    metrics->Add(metric::kTransferBytes, {"receive", kind},
                 static_cast<double>(request.data().size()));
  }
  // After a broken connection too: what came is kept, and the file is resumed after it.
  MILLRACE_ASSIGN_OR_RETURN(const int64_t committed_bytes, upload->Finish());
  response->set_committed_bytes(committed_bytes);
  return absl::OkStatus();
}

}  // namespace millrace

#endif  // MILLRACE_SERVER_RPC_RECEIVE_FILE_H_
