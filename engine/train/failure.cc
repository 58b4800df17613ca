#include "engine/train/failure.h"

#include <iterator>
#include <optional>
#include <string>

#include "absl/strings/cord.h"

namespace millrace {
namespace {

constexpr char kPayloadUrl[] = "millrace.engine/failure_reason";

}  // namespace

absl::Status WithReason(absl::Status status, FailureReason reason) {
  if (!status.ok()) {
    const char byte = static_cast<char>(reason);
    status.SetPayload(kPayloadUrl, absl::Cord(absl::string_view(&byte, 1)));
  }
  return status;
}

absl::Status OnDisk(absl::Status status) {
  return status.code() == absl::StatusCode::kResourceExhausted
             ? WithReason(std::move(status), FailureReason::kDiskFull)
             : status;
}

FailureReason FailureReasonOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayloadUrl);
  if (payload.has_value() && !payload->empty()) return static_cast<FailureReason>((*payload)[0]);
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
      return FailureReason::kInvalid;
    case absl::StatusCode::kResourceExhausted:
      return FailureReason::kOutOfMemory;
    default:
      return FailureReason::kInternal;
  }
}

}  // namespace millrace
