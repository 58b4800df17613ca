// Errors of the API as absl::Status: the code is gRPC's, the message is for a person (one line a
// problem), and the machine-readable reason is kept beside it.
#ifndef MILLRACE_CLIENT_LIB_ERRORS_H_
#define MILLRACE_CLIENT_LIB_ERRORS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "grpcpp/support/status.h"

namespace millrace {

// Where the error carries google.rpc.BadRequest, the message is one line a field, `field: what is
// wrong`, with a job's fields named as in a job file; otherwise it is the server's message.
absl::Status StatusFromGrpc(const grpc::Status& status);

// The reason of google.rpc.ErrorInfo (`JOB_NOT_FOUND`), or empty: an error that comes from the
// transport or from this library has none.
std::string ErrorReason(const absl::Status& status);

// How long the server asks to wait before another try (google.rpc.RetryInfo).
absl::optional<absl::Duration> RetryDelay(const absl::Status& status);

// The same error with another message; reason and delay are kept.
absl::Status WithMessage(const absl::Status& status, const std::string& message);

}  // namespace millrace

#endif  // MILLRACE_CLIENT_LIB_ERRORS_H_
