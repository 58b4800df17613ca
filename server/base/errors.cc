#include "server/base/errors.h"

#include <optional>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"

namespace millrace {
namespace {

struct Row {
  ErrorReason reason;
  const char* name;
  absl::StatusCode code;
};

constexpr Row kReasons[] = {
    {ErrorReason::kRequestInvalid, "REQUEST_INVALID", absl::StatusCode::kInvalidArgument},
    {ErrorReason::kConfigInvalid, "CONFIG_INVALID", absl::StatusCode::kInvalidArgument},
    {ErrorReason::kDatasetInvalid, "DATASET_INVALID", absl::StatusCode::kInvalidArgument},
    {ErrorReason::kModelInvalid, "MODEL_INVALID", absl::StatusCode::kInvalidArgument},
    {ErrorReason::kModelUnsupported, "MODEL_UNSUPPORTED", absl::StatusCode::kInvalidArgument},
    {ErrorReason::kProfileUnknown, "PROFILE_UNKNOWN", absl::StatusCode::kInvalidArgument},
    {ErrorReason::kIllegalState, "ILLEGAL_STATE", absl::StatusCode::kFailedPrecondition},
    {ErrorReason::kHostMemoryInsufficient, "HOST_MEMORY_INSUFFICIENT",
     absl::StatusCode::kFailedPrecondition},
    {ErrorReason::kDeviceMemoryInsufficient, "DEVICE_MEMORY_INSUFFICIENT",
     absl::StatusCode::kFailedPrecondition},
    {ErrorReason::kUploadIncomplete, "UPLOAD_INCOMPLETE", absl::StatusCode::kFailedPrecondition},
    {ErrorReason::kOffsetMismatch, "OFFSET_MISMATCH", absl::StatusCode::kFailedPrecondition},
    {ErrorReason::kInUse, "IN_USE", absl::StatusCode::kFailedPrecondition},
    {ErrorReason::kExportUnsupported, "EXPORT_UNSUPPORTED", absl::StatusCode::kFailedPrecondition},
    {ErrorReason::kModelChanged, "MODEL_CHANGED", absl::StatusCode::kFailedPrecondition},
    {ErrorReason::kOffsetOutOfRange, "OFFSET_OUT_OF_RANGE", absl::StatusCode::kOutOfRange},
    {ErrorReason::kQueueFull, "QUEUE_FULL", absl::StatusCode::kResourceExhausted},
    {ErrorReason::kDiskFull, "DISK_FULL", absl::StatusCode::kResourceExhausted},
    {ErrorReason::kJobNotFound, "JOB_NOT_FOUND", absl::StatusCode::kNotFound},
    {ErrorReason::kAttemptNotFound, "ATTEMPT_NOT_FOUND", absl::StatusCode::kNotFound},
    {ErrorReason::kDatasetNotFound, "DATASET_NOT_FOUND", absl::StatusCode::kNotFound},
    {ErrorReason::kModelNotFound, "MODEL_NOT_FOUND", absl::StatusCode::kNotFound},
    {ErrorReason::kTokenizerNotFound, "TOKENIZER_NOT_FOUND", absl::StatusCode::kNotFound},
    {ErrorReason::kCheckpointNotFound, "CHECKPOINT_NOT_FOUND", absl::StatusCode::kNotFound},
    {ErrorReason::kFileNotFound, "FILE_NOT_FOUND", absl::StatusCode::kNotFound},
    {ErrorReason::kTraceNotFound, "TRACE_NOT_FOUND", absl::StatusCode::kNotFound},
    {ErrorReason::kPathNotAllowed, "PATH_NOT_ALLOWED", absl::StatusCode::kPermissionDenied},
    {ErrorReason::kIdTaken, "ID_TAKEN", absl::StatusCode::kAlreadyExists},
    {ErrorReason::kChecksumMismatch, "CHECKSUM_MISMATCH", absl::StatusCode::kDataLoss},
    {ErrorReason::kDraining, "DRAINING", absl::StatusCode::kUnavailable},
    {ErrorReason::kBusy, "BUSY", absl::StatusCode::kUnavailable},
    {ErrorReason::kInternal, "INTERNAL", absl::StatusCode::kInternal},
};

const Row& RowOf(ErrorReason reason) {
  for (const Row& row : kReasons) {
    if (row.reason == reason) return row;
  }
  return kReasons[std::size(kReasons) - 1];
}

template <typename Message>
std::string TypeUrl() {
  return absl::StrCat("type.googleapis.com/", std::string(Message::descriptor()->full_name()));
}

template <typename Message>
std::optional<Message> GetDetail(const absl::Status& status) {
  const auto payload = status.GetPayload(TypeUrl<Message>());
  Message message;
  if (!payload.has_value() || !message.ParseFromString(std::string(*payload))) return std::nullopt;
  return message;
}

template <typename Message>
void SetDetail(const Message& message, absl::Status* status) {
  status->SetPayload(TypeUrl<Message>(), absl::Cord(message.SerializeAsString()));
}

}  // namespace

absl::string_view ErrorReasonName(ErrorReason reason) { return RowOf(reason).name; }

absl::StatusCode ErrorReasonCode(ErrorReason reason) { return RowOf(reason).code; }

absl::Status MakeError(ErrorReason reason, absl::string_view message) {
  const Row& row = RowOf(reason);
  absl::Status status(row.code, message);
  google::rpc::ErrorInfo info;
  info.set_reason(row.name);
  info.set_domain(kErrorDomain);
  SetDetail(info, &status);
  return status;
}

absl::Status MakeFieldError(ErrorReason reason, const std::vector<FieldViolation>& violations) {
  std::string message = "the request is invalid";
  google::rpc::BadRequest bad_request;
  for (const FieldViolation& violation : violations) {
    auto* added = bad_request.add_field_violations();
    added->set_field(violation.field);
    added->set_description(violation.description);
  }
  if (!violations.empty()) {
    message = absl::StrCat(violations[0].field, ": ", violations[0].description);
    if (violations.size() > 1) {
      absl::StrAppend(&message, " (and ", violations.size() - 1, " more)");
    }
  }
  absl::Status status = MakeError(reason, message);
  SetDetail(bad_request, &status);
  return status;
}

absl::Status WithPreconditionFailure(absl::Status status, absl::string_view type,
                                     absl::string_view subject, absl::string_view description) {
  auto failure = GetDetail<google::rpc::PreconditionFailure>(status).value_or(
      google::rpc::PreconditionFailure());
  auto* violation = failure.add_violations();
  violation->set_type(std::string(type));
  violation->set_subject(std::string(subject));
  violation->set_description(std::string(description));
  SetDetail(failure, &status);
  return status;
}

absl::Status WithRetryDelay(absl::Status status, absl::Duration delay) {
  google::rpc::RetryInfo info;
  absl::Duration rest;
  info.mutable_retry_delay()->set_seconds(absl::IDivDuration(delay, absl::Seconds(1), &rest));
  info.mutable_retry_delay()->set_nanos(static_cast<int>(absl::ToInt64Nanoseconds(rest)));
  SetDetail(info, &status);
  return status;
}

absl::Status WithMetadata(absl::Status status, absl::string_view key, absl::string_view value) {
  auto info = GetDetail<google::rpc::ErrorInfo>(status).value_or(google::rpc::ErrorInfo());
  (*info.mutable_metadata())[std::string(key)] = std::string(value);
  SetDetail(info, &status);
  return status;
}

absl::Status WithMessage(const absl::Status& status, absl::string_view message) {
  absl::Status changed(status.code(), message);
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& payload) { changed.SetPayload(url, payload); });
  return changed;
}

std::string ReasonOf(const absl::Status& status) {
  const auto info = GetDetail<google::rpc::ErrorInfo>(status);
  return info.has_value() ? info->reason() : "";
}

std::vector<FieldViolation> FieldViolationsOf(const absl::Status& status) {
  std::vector<FieldViolation> violations;
  if (const auto bad_request = GetDetail<google::rpc::BadRequest>(status)) {
    for (const auto& violation : bad_request->field_violations()) {
      violations.push_back({violation.field(), violation.description()});
    }
  }
  return violations;
}

}  // namespace millrace
