// A disk that is full: nothing breaks, the error says so, and with room made the work goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/e2e/system.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

std::string WriteText(const System& system, const std::string& name, size_t bytes) {
  std::string text;
  while (text.size() < bytes) absl::StrAppend(&text, "All work and no play ", text.size(), "\n");
  std::string path = absl::StrCat(system.folder(), "/", name);
  WriteWholeFile(path, text);
  return path;
}

TEST(FullDisk, AnUploadGoesOnWhenThereIsRoomAgain) {
  System system;
  ProcessOptions full;
  full.file_size_limit = 4 << 20;
  system.StartDaemon(full);
  std::string path = WriteText(system, "large.txt", 8 << 20);
  RunResult upload = system.Run({"datasets", "upload", "large", path});
  EXPECT_EQ(upload.exit_code, 18) << upload.errors;
  EXPECT_THAT(upload.errors, HasSubstr("large.txt"));
  EXPECT_EQ(system.StopDaemon(), 0);
  system.StartDaemon();
  RunResult again = system.Run({"datasets", "upload", "large", path});
  EXPECT_EQ(again.exit_code, 0) << again.errors;
  EXPECT_THAT(again.output, HasSubstr("READY"));
}

class SmallDiskTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(system_.data_dir());
    ProcessOptions options;
    options.disk_bytes = 8 << 20;
    options.disk_folder = system_.data_dir();
    Process probe({"/bin/true"}, options);
    if (probe.Wait() == kNoPrivateDisk) GTEST_SKIP() << "no private mounts here";
    system_.StartDaemon(options);
    ASSERT_FALSE(HasFatalFailure());
    system_.UploadText();
  }

  System system_;
};

TEST_F(SmallDiskTest, ADatasetThatDoesNotFitIsRefusedBeforeItIsSent) {
  RunResult upload =
      system_.Run({"datasets", "upload", "large", WriteText(system_, "large.txt", 20 << 20)});
  EXPECT_EQ(upload.exit_code, 18) << upload.errors;
  EXPECT_EQ(std::count(upload.errors.begin(), upload.errors.end(), '\n'), 1) << upload.errors;
}

TEST_F(SmallDiskTest, AJobThatCannotSaveFailsForThatReasonAndCanBeResumed) {
  RunResult filler =
      system_.Run({"datasets", "upload", "filler", WriteText(system_, "filler.txt", 4 << 20)});
  ASSERT_EQ(filler.exit_code, 0) << filler.errors;
  JobOptions options;
  options.hidden_size = 128;
  options.checkpoint_every = 0;
  RunResult run =
      system_.Run({"submit", system_.WriteJobFile(JobFileText(options)), "--id", "big", "--watch"});
  EXPECT_EQ(run.exit_code, 9) << run.output << run.errors;
  EXPECT_THAT(run.output, HasSubstr("big FAILED (DISK_FULL)"));
  EXPECT_EQ(system_.Run({"checkpoints", "show", "big", "latest"}).exit_code, 16);
  EXPECT_EQ(system_.Run({"datasets", "delete", "filler"}).exit_code, 0);
  RunResult resume = system_.Run({"resume", "big"});
  EXPECT_EQ(resume.exit_code, 0) << resume.errors;
  EXPECT_EQ(system_.WaitForEnd("big").state(), v1::Job::SUCCEEDED);
}

}  // namespace
}  // namespace millrace
