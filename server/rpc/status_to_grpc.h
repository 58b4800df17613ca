// The one way from an absl::Status to the wire.
#ifndef MILLRACE_SERVER_RPC_STATUS_TO_GRPC_H_
#define MILLRACE_SERVER_RPC_STATUS_TO_GRPC_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace millrace {

// Field violations that fit in a reply; trailers are limited in size.
inline constexpr int kMaxFieldViolations = 20;

// The same code and message, with the details that server/base/errors.h attached as a
// google.rpc.Status. Field violations beyond kMaxFieldViolations are left out, and one in their
// place says how many. A message longer than 2 KiB is cut. A status without ErrorInfo gets one
// whose reason is the code's name.
grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace millrace

#endif  // MILLRACE_SERVER_RPC_STATUS_TO_GRPC_H_
