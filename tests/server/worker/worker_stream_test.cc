// Both ends of WorkerService on a real socket: DaemonLink in this process stands for a worker.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "server/rpc/worker_service.h"
#include "server/worker/daemon_link.h"
#include "server/worker/supervisor.h"
#include "tests/server/worker/recording_sink.h"
#include "tests/server/worker/temp_folder.h"

namespace millrace {
namespace {

class WorkerStreamTest : public ::testing::Test {
 protected:
  WorkerStreamTest() : paths_(MakeTempFolder()) {
    std::filesystem::create_directories(paths_.Job("one"));
    StartDaemon();
    // The process whose stream the link stands for.
    v1::JobSpec spec;
    spec.set_name("patient");
    EXPECT_TRUE(supervisor_->Start("one", 1, spec).ok());
  }

  ~WorkerStreamTest() override {
    link_.reset();
    if (supervisor_ == nullptr) return;
    supervisor_->RequestCancel("one", 1, absl::ZeroDuration());
    sink_.WaitForExit();
    StopDaemon();
  }

  void StartDaemon() {
    Supervisor::Options options{.paths = paths_};
    options.worker_program =
        absl::StrCat(getenv("TEST_SRCDIR"), "/millrace/tests/server/worker/fake_worker");
    options.socket = paths_.WorkerSocket();
    supervisor_ = std::make_unique<Supervisor>(options);
    supervisor_->SetSink(&sink_);
    auto listener = WorkerListener::Start(paths_.WorkerSocket(), supervisor_.get(), &sink_);
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
  }

  void StopDaemon() {
    listener_.reset();
    supervisor_.reset();
  }

  void Connect(const std::string& job_id = "one", int attempt = 1) {
    link_ = std::make_unique<DaemonLink>(
        DaemonLink::Options{.socket = paths_.WorkerSocket(), .job_id = job_id, .attempt = attempt},
        &buffer_, [this](const v1::WorkerCommand& command) {
          absl::MutexLock lock(&mutex_);
          commands_.push_back(command);
        });
  }

  void AddSteps(int first, int last) {
    for (int step = first; step <= last; ++step) {
      v1::WorkerReport report;
      report.mutable_step()->set_step(step);
      buffer_.Add(report);
    }
  }

  v1::WorkerCommand WaitForCommand() {
    absl::MutexLock lock(&mutex_);
    const auto ready = [this] {
      mutex_.AssertReaderHeld();
      return !commands_.empty();
    };
    mutex_.AwaitWithTimeout(absl::Condition(&ready), absl::Seconds(30));
    return commands_.empty() ? v1::WorkerCommand() : commands_.back();
  }

  void ExpectSteps(const std::vector<v1::WorkerReport>& reports, int count) {
    ASSERT_EQ(reports.size(), count);
    for (int i = 0; i < count; ++i) EXPECT_EQ(reports[i].step().step(), i + 1);
  }

  DataPaths paths_;
  RecordingSink sink_;
  std::unique_ptr<Supervisor> supervisor_;
  std::unique_ptr<WorkerListener> listener_;
  ReportBuffer buffer_;
  absl::Mutex mutex_;
  std::vector<v1::WorkerCommand> commands_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<DaemonLink> link_;
};

TEST_F(WorkerStreamTest, DeliversAndAcknowledges) {
  Connect();
  AddSteps(1, 1000);
  EXPECT_TRUE(buffer_.WaitUntilAllAcknowledged(absl::Seconds(30)));
  ExpectSteps(sink_.WaitForReports(1000), 1000);
  EXPECT_EQ(sink_.duplicates(), 0);
}

TEST_F(WorkerStreamTest, IsOpenToTheDaemonsUserOnly) {
  struct stat status;
  ASSERT_EQ(stat(paths_.WorkerSocket().c_str(), &status), 0);
  EXPECT_TRUE(S_ISSOCK(status.st_mode));
  EXPECT_EQ(status.st_mode & 0777, 0600);
}

TEST_F(WorkerStreamTest, SendsAgainToTheNextDaemonWhatWasNotAcknowledged) {
  Connect();
  AddSteps(1, 10);
  ASSERT_TRUE(buffer_.WaitUntilAllAcknowledged(absl::Seconds(30)));
  sink_.SetSilent(true);
  AddSteps(11, 20);
  sink_.WaitForReports(20);
  StopDaemon();
  AddSteps(21, 30);
  sink_.SetSilent(false);

  StartDaemon();
  ASSERT_TRUE(*supervisor_->Adopt("one", 1));
  supervisor_->AcceptWorkers();
  EXPECT_TRUE(buffer_.WaitUntilAllAcknowledged(absl::Seconds(30)));
  ExpectSteps(sink_.WaitForReports(30), 30);
}

TEST_F(WorkerStreamTest, PassesOnCommands) {
  Connect();
  supervisor_->RequestStop("one", 1, "PAUSE");
  EXPECT_EQ(WaitForCommand().stop().trigger(), "PAUSE");
}

TEST_F(WorkerStreamTest, TellsAnOldAttemptToCancel) {
  supervisor_->AcceptWorkers();
  Connect("one", 7);
  EXPECT_TRUE(WaitForCommand().has_cancel());
}

TEST_F(WorkerStreamTest, NeverBlocksTheTrainingThreadWhileNoDaemonRuns) {
  StopDaemon();
  Connect();
  AddSteps(1, 100);
  EXPECT_FALSE(buffer_.WaitUntilAllAcknowledged(absl::ZeroDuration()));
  StartDaemon();
  ASSERT_TRUE(*supervisor_->Adopt("one", 1));
  EXPECT_TRUE(buffer_.WaitUntilAllAcknowledged(absl::Seconds(30)));
}

}  // namespace
}  // namespace millrace
