// Errors of the service: a status whose payloads are the google.rpc details that clients read.
//
//   return MakeError(ErrorReason::kJobNotFound, absl::StrCat("jobs/", id, " does not exist"));
//
//   return MakeFieldError(ErrorReason::kConfigInvalid,
//                         {{"spec.train.steps", "0 is too few; give at least 1"}});
//
// The code follows from the reason, so that a reason always comes with the same code. Nothing here
// knows of gRPC: server/rpc/status_to_grpc.h turns such a status into one for the wire.
#ifndef MILLRACE_SERVER_BASE_ERRORS_H_
#define MILLRACE_SERVER_BASE_ERRORS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace millrace {

// What clients may switch on; the name on the wire (JOB_NOT_FOUND) and the code stand in the table
// in errors.cc.
enum class ErrorReason {
  // INVALID_ARGUMENT
  kRequestInvalid,  // a resource name, page token or other part of a request that is no spec
  kConfigInvalid,
  kDatasetInvalid,
  kModelInvalid,
  kModelUnsupported,
  kProfileUnknown,
  // FAILED_PRECONDITION
  kIllegalState,
  kHostMemoryInsufficient,
  kDeviceMemoryInsufficient,
  kUploadIncomplete,
  kOffsetMismatch,
  kInUse,
  kExportUnsupported,
  kModelChanged,  // a registered model is not what it was any more
  // OUT_OF_RANGE
  kOffsetOutOfRange,
  // RESOURCE_EXHAUSTED
  kQueueFull,
  kDiskFull,
  // NOT_FOUND
  kJobNotFound,
  kAttemptNotFound,
  kDatasetNotFound,
  kModelNotFound,
  kTokenizerNotFound,
  kCheckpointNotFound,
  kFileNotFound,
  kTraceNotFound,
  // PERMISSION_DENIED
  kPathNotAllowed,
  // ALREADY_EXISTS
  kIdTaken,
  // DATA_LOSS
  kChecksumMismatch,
  // UNAVAILABLE
  kDraining,
  kBusy,
  // INTERNAL
  kInternal,
};

// `JOB_NOT_FOUND` and so on.
absl::string_view ErrorReasonName(ErrorReason reason);
absl::StatusCode ErrorReasonCode(ErrorReason reason);

// The ErrorInfo domain.
inline constexpr char kErrorDomain[] = "millrace";

// A status with its ErrorInfo.
absl::Status MakeError(ErrorReason reason, absl::string_view message);

struct FieldViolation {
  // Path from the request's root: `spec.data.sequence_length`.
  std::string field;
  // What is wrong with the value, and the fix.
  std::string description;
};

// A status with ErrorInfo and BadRequest. Its message is the first violation as `field:
// description`, and how many more there are. Requires at least one violation.
absl::Status MakeFieldError(ErrorReason reason, const std::vector<FieldViolation>& violations);

// Adds a google.rpc.PreconditionFailure violation: `type` is a reason-like name, `subject` the
// resource.
absl::Status WithPreconditionFailure(absl::Status status, absl::string_view type,
                                     absl::string_view subject, absl::string_view description);

// Adds google.rpc.RetryInfo.
absl::Status WithRetryDelay(absl::Status status, absl::Duration delay);

// Adds one entry to the ErrorInfo's metadata. Requires a status of MakeError or MakeFieldError.
absl::Status WithMetadata(absl::Status status, absl::string_view key, absl::string_view value);

// The same with another message.
absl::Status WithMessage(const absl::Status& status, absl::string_view message);

// The reason's name, empty for a status without ErrorInfo.
std::string ReasonOf(const absl::Status& status);

// The field violations of a status, empty where it has none.
std::vector<FieldViolation> FieldViolationsOf(const absl::Status& status);

}  // namespace millrace

#endif  // MILLRACE_SERVER_BASE_ERRORS_H_
