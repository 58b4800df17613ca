#include "server/rpc/status_to_grpc.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/base/errors.h"

namespace millrace {
namespace {

constexpr size_t kMaxMessageBytes = 2048;
// One violation's description; with the cap on their number, details stay below 8 KiB.
constexpr size_t kMaxDescriptionBytes = 280;

std::string Cut(const std::string& text, size_t limit) {
  if (text.size() <= limit) return text;
  size_t end = limit;
  // Not in the middle of a UTF-8 character.
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

google::rpc::BadRequest Capped(const google::rpc::BadRequest& full) {
  google::rpc::BadRequest capped;
  const int total = full.field_violations_size();
  const int kept = total > kMaxFieldViolations ? kMaxFieldViolations - 1 : total;
  for (int i = 0; i < kept; ++i) {
    auto* violation = capped.add_field_violations();
    violation->set_field(Cut(full.field_violations(i).field(), kMaxDescriptionBytes));
    violation->set_description(Cut(full.field_violations(i).description(), kMaxDescriptionBytes));
  }
  if (kept < total) {
    capped.add_field_violations()->set_description(
        absl::StrCat("and ", total - kept, " more violations"));
  }
  return capped;
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  google::rpc::Status wire;
  wire.set_code(static_cast<int>(status.code()));
  wire.set_message(Cut(std::string(status.message()), kMaxMessageBytes));
  bool has_info = false;
  status.ForEachPayload([&](absl::string_view type_url, const absl::Cord& payload) {
    auto* detail = wire.add_details();
    detail->set_type_url(std::string(type_url));
    detail->set_value(std::string(payload));
    has_info = has_info || detail->Is<google::rpc::ErrorInfo>();
    google::rpc::BadRequest bad_request;
    if (detail->UnpackTo(&bad_request)) detail->PackFrom(Capped(bad_request));
  });
  if (!has_info) {
    google::rpc::ErrorInfo info;
    info.set_reason(absl::StatusCodeToString(status.code()));
    info.set_domain(kErrorDomain);
    wire.add_details()->PackFrom(info);
  }
  return grpc::Status(static_cast<grpc::StatusCode>(wire.code()), wire.message(),
                      wire.SerializeAsString());
}

}  // namespace millrace
