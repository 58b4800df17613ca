#include "server/rpc/status_to_grpc.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/base/errors.h"

namespace millrace {
namespace {

template <typename Message>
std::vector<Message> DetailsOf(const grpc::Status& status) {
  google::rpc::Status wire;
  EXPECT_TRUE(wire.ParseFromString(status.error_details()));
  EXPECT_EQ(wire.code(), status.error_code());
  std::vector<Message> found;
  for (const auto& detail : wire.details()) {
    Message message;
    if (detail.UnpackTo(&message)) found.push_back(message);
  }
  return found;
}

TEST(StatusToGrpcTest, CarriesExactlyOneErrorInfo) {
  const grpc::Status status = ToGrpcStatus(
      WithMetadata(MakeError(ErrorReason::kJobNotFound, "jobs/x does not exist"), "job", "jobs/x"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "jobs/x does not exist");
  const auto infos = DetailsOf<google::rpc::ErrorInfo>(status);
  ASSERT_EQ(infos.size(), 1);
  EXPECT_EQ(infos[0].reason(), "JOB_NOT_FOUND");
  EXPECT_EQ(infos[0].domain(), "millrace");
  EXPECT_EQ(infos[0].metadata().at("job"), "jobs/x");
}

TEST(StatusToGrpcTest, GivesAnErrorInfoToAStatusWithout) {
  const auto infos = DetailsOf<google::rpc::ErrorInfo>(ToGrpcStatus(absl::DataLossError("row 7")));
  ASSERT_EQ(infos.size(), 1);
  EXPECT_EQ(infos[0].reason(), "DATA_LOSS");
}

TEST(StatusToGrpcTest, CapsFieldViolationsAndSaysHowManyMoreThereAre) {
  std::vector<FieldViolation> violations;
  for (int i = 0; i < 50; ++i) {
    violations.push_back({absl::StrCat("spec.f", i), std::string(1000, 'x')});
  }
  const grpc::Status status = ToGrpcStatus(MakeFieldError(ErrorReason::kConfigInvalid, violations));
  const auto requests = DetailsOf<google::rpc::BadRequest>(status);
  ASSERT_EQ(requests.size(), 1);
  ASSERT_EQ(requests[0].field_violations_size(), kMaxFieldViolations);
  EXPECT_EQ(requests[0].field_violations(18).field(), "spec.f18");
  EXPECT_EQ(requests[0].field_violations(19).description(), "and 31 more violations");
  // Trailers are limited to 8 KiB by default.
  EXPECT_LT(status.error_details().size() + status.error_message().size(), 8192u);
}

TEST(StatusToGrpcTest, KeepsRetryAndPreconditionDetails) {
  absl::Status status =
      WithRetryDelay(MakeError(ErrorReason::kDraining, "stopping"), absl::Milliseconds(2500));
  status = WithPreconditionFailure(status, "STATE", "jobs/x", "is RUNNING");
  const auto retries = DetailsOf<google::rpc::RetryInfo>(ToGrpcStatus(status));
  ASSERT_EQ(retries.size(), 1);
  EXPECT_EQ(retries[0].retry_delay().seconds(), 2);
  EXPECT_EQ(retries[0].retry_delay().nanos(), 500'000'000);
  const auto failures = DetailsOf<google::rpc::PreconditionFailure>(ToGrpcStatus(status));
  ASSERT_EQ(failures.size(), 1);
  EXPECT_EQ(failures[0].violations(0).subject(), "jobs/x");
}

TEST(StatusToGrpcTest, OkStaysOk) { EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok()); }

}  // namespace
}  // namespace millrace
