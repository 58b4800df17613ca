#include "server/worker/child_task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ChildTask Shell(const std::string& script) {
  return {.command = {"/bin/sh", "-c", script}, .on_progress = nullptr, .cancelled = nullptr};
}

TEST(ChildTask, GivesProgressAndResult) {
  std::vector<int> seen;
  ChildTask task =
      Shell(R"(echo '{"progress": {"done": 1}}'; echo 'no JSON'; echo '{"progress": {"done": 2}}')"
            R"(; echo '{"result": {"size": 7}}')");
  task.on_progress = [&](const nlohmann::json& progress) { seen.push_back(progress["done"]); };
  const auto result = RunChildTask(task);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ((*result)["size"], 7);
  EXPECT_THAT(seen, ElementsAre(1, 2));
}

TEST(ChildTask, GivesTheErrorThatTheProcessTells) {
  const auto result =
      RunChildTask(Shell(R"(echo '{"error": {"code": 12, "message": "no word for it"}}'; exit 1)"));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(result.status().message(), "no word for it");
}

TEST(ChildTask, ACrashIsAnErrorWithWhatWasSaidLast) {
  const auto result = RunChildTask(Shell("echo out of luck >&2; kill -SEGV $$"));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(result.status().message()),
              AllOf(HasSubstr("signal 11"), HasSubstr("out of luck")));
  EXPECT_THAT(std::string(RunChildTask(Shell("exit 3")).status().message()), HasSubstr("code 3"));
  EXPECT_FALSE(
      RunChildTask(
          {.command = {"/no/such/program", "x"}, .on_progress = nullptr, .cancelled = nullptr})
          .ok());
}

TEST(ChildTask, EndsWhenNobodyWaitsForItAnyMore) {
  ChildTask task = Shell("exec sleep 1000");
  task.cancelled = [] { return true; };
  EXPECT_EQ(RunChildTask(task).status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace millrace
