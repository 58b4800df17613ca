#include "client/lib/errors.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace millrace {
namespace {

constexpr char kErrorInfo[] = "type.googleapis.com/google.rpc.ErrorInfo";
constexpr char kRetryInfo[] = "type.googleapis.com/google.rpc.RetryInfo";

// As the field is written in a job file: without the request's `spec.`, and sizes without `_bytes`.
std::string FieldName(absl::string_view field) {
  if (absl::ConsumePrefix(&field, "spec.")) absl::ConsumeSuffix(&field, "_bytes");
  return std::string(field);
}

std::string FieldLines(const google::rpc::BadRequest& bad_request) {
  std::vector<std::string> lines;
  for (const auto& violation : bad_request.field_violations()) {
    std::string field = FieldName(violation.field());
    bool named = field.empty() || absl::StartsWith(violation.description(), field + ":");
    lines.push_back(named ? violation.description()
                          : absl::StrCat(field, ": ", violation.description()));
  }
  return absl::StrJoin(lines, "\n");
}

}  // namespace

absl::Status StatusFromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) details.Clear();

  std::string message = status.error_message();
  absl::Cord error_info;
  absl::Cord retry_info;
  for (const auto& any : details.details()) {
    google::rpc::BadRequest bad_request;
    if (any.Is<google::rpc::BadRequest>() && any.UnpackTo(&bad_request) &&
        bad_request.field_violations_size() > 0) {
      message = FieldLines(bad_request);
    } else if (any.Is<google::rpc::ErrorInfo>()) {
      error_info = absl::Cord(any.value());
    } else if (any.Is<google::rpc::RetryInfo>()) {
      retry_info = absl::Cord(any.value());
    }
  }
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), message);
  if (!error_info.empty()) result.SetPayload(kErrorInfo, error_info);
  if (!retry_info.empty()) result.SetPayload(kRetryInfo, retry_info);
  return result;
}

std::string ErrorReason(const absl::Status& status) {
  absl::optional<absl::Cord> payload = status.GetPayload(kErrorInfo);
  google::rpc::ErrorInfo info;
  if (!payload.has_value() || !info.ParseFromString(std::string(*payload))) return "";
  return info.reason();
}

absl::optional<absl::Duration> RetryDelay(const absl::Status& status) {
  absl::optional<absl::Cord> payload = status.GetPayload(kRetryInfo);
  google::rpc::RetryInfo info;
  if (!payload.has_value() || !info.ParseFromString(std::string(*payload))) return absl::nullopt;
  return absl::Seconds(info.retry_delay().seconds()) +
         absl::Nanoseconds(info.retry_delay().nanos());
}

absl::Status WithMessage(const absl::Status& status, const std::string& message) {
  absl::Status result(status.code(), message);
  status.ForEachPayload(
      [&](absl::string_view type, const absl::Cord& payload) { result.SetPayload(type, payload); });
  return result;
}

}  // namespace millrace
