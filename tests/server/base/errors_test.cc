#include "server/base/errors.h"

#include <gtest/gtest.h>

#include "server/base/pages.h"
#include "server/base/resource_names.h"

namespace millrace {
namespace {

TEST(ErrorsTest, ReasonFixesTheCode) {
  const absl::Status status = MakeError(ErrorReason::kJobNotFound, "jobs/x does not exist");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReasonOf(status), "JOB_NOT_FOUND");
  EXPECT_EQ(ReasonOf(absl::InternalError("of somebody else")), "");
}

TEST(ErrorsTest, EveryReasonHasItsOwnName) {
  std::string names;
  for (int i = 0; i <= static_cast<int>(ErrorReason::kInternal); ++i) {
    const auto reason = static_cast<ErrorReason>(i);
    const std::string name(ErrorReasonName(reason));
    EXPECT_EQ(names.find("|" + name + "|"), std::string::npos) << name;
    names += "|" + name + "|";
    EXPECT_NE(ErrorReasonCode(reason), absl::StatusCode::kOk);
  }
}

TEST(ErrorsTest, FieldErrorsAreReadAsTheyWereWritten) {
  const absl::Status status =
      MakeFieldError(ErrorReason::kConfigInvalid,
                     {{"spec.train.steps", "0 is too few"}, {"spec.name", "is long"}});
  EXPECT_EQ(status.message(), "spec.train.steps: 0 is too few (and 1 more)");
  const auto violations = FieldViolationsOf(status);
  ASSERT_EQ(violations.size(), 2);
  EXPECT_EQ(violations[1].field, "spec.name");
  EXPECT_EQ(violations[1].description, "is long");
}

TEST(ResourceNamesTest, AcceptsOnlyTheFormOfTheKind) {
  EXPECT_EQ(*ParseJobName("name", "jobs/a-1"), "a-1");
  EXPECT_EQ(*ParseDatasetName("name", "datasets/a"), "a");
  EXPECT_EQ(ParseCheckpointName("name", "jobs/a/checkpoints/latest")->step, "latest");
  for (const char* bad :
       {"", "a", "jobs/", "jobs/A", "jobs/a/b", "datasets/a", "jobs/../x", "jobs/a-", "jobs/1a"}) {
    const auto parsed = ParseJobName("name", bad);
    EXPECT_EQ(ReasonOf(parsed.status()), "REQUEST_INVALID") << bad;
  }
  EXPECT_TRUE(IsValidId(std::string(63, 'a')));
  EXPECT_FALSE(IsValidId(std::string(64, 'a')));
}

TEST(PagesTest, SizesAreCoercedAndTokensBelongToTheirFilter) {
  EXPECT_EQ(*PageSize(0), 50);
  EXPECT_EQ(*PageSize(100000), 1000);
  EXPECT_FALSE(PageSize(-1).ok());
  const std::string token = EncodePageToken("17", "jobs RUNNING");
  EXPECT_EQ(*DecodePageToken(token, "jobs RUNNING"), "17");
  EXPECT_EQ(*DecodePageToken("", "jobs RUNNING"), "");
  EXPECT_FALSE(DecodePageToken(token, "jobs").ok());
  EXPECT_FALSE(DecodePageToken("?", "jobs").ok());
}

}  // namespace
}  // namespace millrace
