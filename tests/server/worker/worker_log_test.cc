#include "server/worker/worker_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "engine/base/file.h"
#include "server/worker/exit_codes.h"
#include "server/worker/exit_report.h"
#include "tests/server/worker/temp_folder.h"

namespace millrace {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

int OpenLog(const std::string& path) {
  return open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
}

TEST(WorkerLog, WritesTimeLevelAndText) {
  const std::string path = MakeTempFolder() + "/log";
  MakeWorkerLog(OpenLog(path))->warn("step {}", 3);
  EXPECT_THAT(*ReadFile(path), MatchesRegex(R"(\[20..-..-..T..:..:..\....Z\] \[warning\] step 3
)"));
}

TEST(WorkerLog, IsFullAtItsLimitAndStillTakesErrors) {
  const std::string path = MakeTempFolder() + "/log";
  auto log = MakeWorkerLog(OpenLog(path), /*most_bytes=*/2000);
  for (int i = 0; i < 1000; ++i) log->info("line {}", i);
  log->error("the loss is no longer a number");
  EXPECT_LT(std::filesystem::file_size(path), 2200);
  const std::string text = *ReadFile(path);
  EXPECT_THAT(text, HasSubstr("line 0\n"));
  EXPECT_THAT(text, HasSubstr("this log is full at 2000 bytes"));
  EXPECT_THAT(text, EndsWith("the loss is no longer a number\n"));

  // Another writer of the same file counts what is there.
  MakeWorkerLog(OpenLog(path), 2000)->info("later");
  EXPECT_THAT(*ReadFile(path), Not(HasSubstr("later")));
}

TEST(ExitReport, TakesTheLastErrorWithoutItsPrefix) {
  const std::string path = MakeTempFolder() + "/log";
  auto log = MakeWorkerLog(OpenLog(path));
  EXPECT_EQ(LastError(path, true), "");
  log->info("begin");
  EXPECT_EQ(LastError(path, false), "");
  log->error("first");
  log->error("second: a thing");
  log->info("end");
  EXPECT_EQ(LastError(path, false), "second: a thing");
  EXPECT_EQ(LastError(path, true), "second: a thing");
  std::ofstream(path, std::ios::app) << "Segmentation fault\n";
  EXPECT_EQ(LastError(path, true), "Segmentation fault");
  EXPECT_EQ(LastError(path + ".none", true), "");
}

TEST(ExitReport, FindsAnErrorAtTheEndOfAHugeLog) {
  const std::string path = MakeTempFolder() + "/log";
  std::ofstream(path) << std::string(1 << 20, 'x') << "\n";
  MakeWorkerLog(OpenLog(path))->error("at last");
  EXPECT_EQ(LastError(path, false), "at last");
}

TEST(ExitReport, AlwaysSaysSomething) {
  using Status = WorkerProcess::ExitStatus;
  const std::string none = "/no/log";
  EXPECT_EQ(DescribeExit(Status{false, 6}, none, 0, "").reason, v1::REASON_DISK_FULL);
  EXPECT_EQ(DescribeExit(Status{true, 9}, none, 1, "").reason, v1::REASON_OUT_OF_MEMORY);
  EXPECT_EQ(DescribeExit(Status{true, 9}, none, 0, "").reason, v1::REASON_CRASH);
  EXPECT_EQ(DescribeExit(Status{true, 11}, none, 1, "").reason, v1::REASON_CRASH);
  EXPECT_EQ(DescribeExit(Status{false, 77}, none, 0, "").description, "exit code 77");
  EXPECT_FALSE(DescribeExit({}, none, 0, "").description.empty());
  EXPECT_EQ(DescribeExit(Status{true, 9}, none, 0, "killed by us").description, "killed by us");
}

TEST(ExitCodes, AreOneTable) {
  for (const WorkerExitCodeRow& row : WorkerExitCodes()) {
    EXPECT_EQ(FindWorkerExitCode(static_cast<int>(row.code)), &row);
    EXPECT_THAT(WorkerExitCodeHelp(), HasSubstr(row.meaning));
  }
  EXPECT_EQ(FindWorkerExitCode(99), nullptr);
  EXPECT_EQ(WorkerExitCodeOf(v1::REASON_NON_FINITE_LOSS), WorkerExitCode::kNonFiniteLoss);
  EXPECT_EQ(WorkerExitCodeOf(v1::REASON_INTERNAL), WorkerExitCode::kError);
  EXPECT_EQ(WorkerExitCodeOf(v1::REASON_CRASH), WorkerExitCode::kError);
}

}  // namespace
}  // namespace millrace
