#include "engine/train/failure.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(FailureTest, TheReasonAttachedCounts) {
  EXPECT_EQ(FailureReasonOf(WithReason(absl::AbortedError("x"), FailureReason::kNonFiniteLoss)),
            FailureReason::kNonFiniteLoss);
}

TEST(FailureTest, WithoutOneTheCodeTells) {
  EXPECT_EQ(FailureReasonOf(absl::InvalidArgumentError("x")), FailureReason::kInvalid);
  EXPECT_EQ(FailureReasonOf(absl::FailedPreconditionError("x")), FailureReason::kInvalid);
  EXPECT_EQ(FailureReasonOf(absl::ResourceExhaustedError("x")), FailureReason::kOutOfMemory);
  EXPECT_EQ(FailureReasonOf(absl::DataLossError("x")), FailureReason::kInternal);
}

TEST(FailureTest, AnExhaustedResourceOnDiskIsAFullDisk) {
  EXPECT_EQ(FailureReasonOf(OnDisk(absl::ResourceExhaustedError("x"))), FailureReason::kDiskFull);
  EXPECT_EQ(FailureReasonOf(OnDisk(absl::NotFoundError("x"))), FailureReason::kInvalid);
  EXPECT_TRUE(OnDisk(absl::OkStatus()).ok());
}

}  // namespace
}  // namespace millrace
