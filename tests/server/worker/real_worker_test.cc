// millrace-worker itself under a Supervisor, over a real socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/job_file/job_file.h"
#include "server/rpc/worker_service.h"
#include "server/worker/job_lock.h"
#include "server/worker/supervisor.h"
#include "tests/server/worker/recording_sink.h"
#include "tests/server/worker/temp_folder.h"
#include "tests/server/worker/tiny_job.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using Ended = v1::WorkerReport::Ended;

// A daemon as far as workers see it.
class RealWorkerTest : public ::testing::Test {
 protected:
  RealWorkerTest() : paths_(MakeTempFolder()), sink_(std::make_unique<RecordingSink>()) {
    WriteTinyText(paths_.Dataset("plays") + "/files/a.txt");
    StartDaemon();
  }
  ~RealWorkerTest() override {
    if (supervisor_ != nullptr) supervisor_->RequestCancel("one", 1, absl::ZeroDuration());
    StopDaemon();
  }

  void StartDaemon() {
    Supervisor::Options options{.paths = paths_};
    options.worker_program =
        absl::StrCat(getenv("TEST_SRCDIR"), "/millrace/server/worker/millrace-worker");
    options.socket = paths_.WorkerSocket();
    supervisor_ = std::make_unique<Supervisor>(options);
    supervisor_->SetSink(sink_.get());
    auto listener = WorkerListener::Start(paths_.WorkerSocket(), supervisor_.get(), sink_.get());
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
  }

  void StopDaemon() {
    listener_.reset();
    supervisor_.reset();
  }

  void Start(int attempt, int steps, const std::string& more = "", const std::string& id = "one") {
    auto spec = ParseJobFile(TinyJob("datasets/plays", steps, more));
    ASSERT_TRUE(spec.ok()) << spec.status();
    const absl::Status status = supervisor_->Start(id, attempt, *spec);
    ASSERT_TRUE(status.ok()) << status;
  }

  // Waits for the end of the attempt; what it reported.
  std::vector<v1::WorkerReport> Finish() {
    exit_ = sink_->WaitForExit();
    auto reports = sink_->WaitForReports(0);
    sink_->Forget();
    return reports;
  }

  static std::vector<int64_t> StepsIn(const std::vector<v1::WorkerReport>& reports) {
    std::vector<int64_t> steps;
    for (const auto& report : reports) {
      if (report.has_step()) steps.push_back(report.step().step());
    }
    return steps;
  }

  static std::vector<int64_t> Range(int64_t first, int64_t last) {
    std::vector<int64_t> steps;
    for (int64_t step = first; step <= last; ++step) steps.push_back(step);
    return steps;
  }

  int Pid() {
    auto owner = FindJobLockOwner(paths_.Job("one"), absl::Seconds(30));
    return owner.ok() && owner->has_value() ? (*owner)->pid : 0;
  }

  DataPaths paths_;
  std::unique_ptr<RecordingSink> sink_;
  std::unique_ptr<Supervisor> supervisor_;
  std::unique_ptr<WorkerListener> listener_;
  WorkerExit exit_;
};

TEST_F(RealWorkerTest, ReportsARunFromBeginningToEnd) {
  Start(1, 20, "sample: {every_steps: 10, prompts: [Line], max_tokens: 4}\n");
  const auto reports = Finish();
  ASSERT_FALSE(reports.empty());
  ASSERT_TRUE(reports.front().has_prepared()) << exit_.description;
  const auto& prepared = reports.front().prepared();
  EXPECT_EQ(prepared.start_step(), 0);
  EXPECT_EQ(prepared.resolved_spec().train().threads(), 1);
  EXPECT_EQ(prepared.resolved_spec().train().tokens_per_micro_batch(), 64);
  EXPECT_EQ(StepsIn(reports), Range(1, 20));
  int samples = 0, checkpoints = 0, memory = 0;
  for (const auto& report : reports) {
    samples += report.has_sample();
    checkpoints += report.has_checkpoint();
    memory += report.has_memory();
  }
  EXPECT_EQ(samples, 2);
  EXPECT_EQ(checkpoints, 10);
  EXPECT_GT(memory, 0);
  ASSERT_TRUE(reports.back().has_ended());
  EXPECT_EQ(reports.back().ended().outcome(), Ended::SUCCEEDED);
  EXPECT_EQ(reports.back().ended().step(), 20);
  EXPECT_THAT(exit_.description, HasSubstr("exit code 0"));
  EXPECT_THAT(*ReadFile(paths_.AttemptLog("one", 1)), HasSubstr("step 20/20"));
}

TEST_F(RealWorkerTest, StopsWithACheckpointAndGoesOnFromIt) {
  Start(1, 100'000);
  sink_->WaitForReports(20);
  supervisor_->RequestStop("one", 1, "PAUSE");
  auto reports = Finish();
  ASSERT_TRUE(reports.back().has_ended());
  EXPECT_EQ(reports.back().ended().outcome(), Ended::STOPPED);
  const int64_t step = reports.back().ended().step();
  ASSERT_GE(reports.size(), 2);
  EXPECT_EQ(reports[reports.size() - 2].checkpoint().step(), step);
  EXPECT_EQ(reports[reports.size() - 2].checkpoint().trigger(), "PAUSE");

  Start(2, 100'000);
  reports = sink_->WaitForReports(1);
  ASSERT_TRUE(reports.front().has_prepared());
  EXPECT_EQ(reports.front().prepared().start_step(), step);
  supervisor_->RequestCancel("one", 2, absl::Seconds(30));
  reports = Finish();
  EXPECT_EQ(reports.back().ended().outcome(), Ended::CANCELLED);
  EXPECT_THAT(exit_.description, HasSubstr("exit code 8"));
}

TEST_F(RealWorkerTest, ASignalAfterTheDaemonsStopStillLeavesTheCheckpoint) {
  Start(1, 100'000);
  sink_->WaitForReports(20);
  const int pid = Pid();
  ASSERT_GT(pid, 0);
  supervisor_->RequestStop("one", 1, "SHUTDOWN");
  kill(pid, SIGTERM);
  const auto reports = Finish();
  EXPECT_EQ(reports.back().ended().outcome(), Ended::STOPPED);
}

TEST_F(RealWorkerTest, EndsAsIfItHadNeverBeenKilled) {
  const std::string checkpoint = "checkpoint: {every_steps: 5, keep_best: 0}\n";
  Start(1, 60, checkpoint, "undisturbed");
  sink_->WaitForExit();
  sink_->Forget();

  size_t reports_before_kill = 10;
  int attempt = 1;
  for (; attempt <= 3; ++attempt) {
    Start(attempt, 60, checkpoint);
    sink_->WaitForReports(reports_before_kill);
    const int pid = Pid();
    ASSERT_GT(pid, 0);
    kill(pid, SIGKILL);
    Finish();
    reports_before_kill += 10;
  }
  Start(attempt, 60, checkpoint);
  const auto reports = Finish();
  EXPECT_EQ(reports.back().ended().outcome(), Ended::SUCCEEDED) << exit_.description;
  EXPECT_EQ(HashesIn(paths_.Checkpoints("one") + "/60"),
            HashesIn(paths_.Checkpoints("undisturbed") + "/60"));
}

TEST_F(RealWorkerTest, GoesOnWhileTheDaemonIsAwayAndMissesNothing) {
  Start(1, 400);
  sink_->WaitForReports(5);
  StopDaemon();
  const int pid = Pid();
  EXPECT_GT(pid, 0);
  StartDaemon();
  ASSERT_TRUE(*supervisor_->Adopt("one", 1));
  supervisor_->AcceptWorkers();
  const auto reports = Finish();
  EXPECT_EQ(StepsIn(reports), Range(1, 400));
  EXPECT_EQ(reports.back().ended().outcome(), Ended::SUCCEEDED);
}

TEST_F(RealWorkerTest, SaysWhatIsWrongWithAJob) {
  std::filesystem::remove_all(paths_.Dataset("plays"));
  Start(1, 10);
  const auto reports = Finish();
  ASSERT_EQ(reports.size(), 1);
  EXPECT_EQ(reports[0].ended().outcome(), Ended::FAILED);
  EXPECT_EQ(reports[0].ended().reason(), v1::REASON_INVALID);
  EXPECT_THAT(reports[0].ended().message(), HasSubstr("plays"));
  EXPECT_THAT(exit_.description, HasSubstr("exit code 3"));
}

}  // namespace
}  // namespace millrace
