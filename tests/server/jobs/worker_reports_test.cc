// What a worker's reports and its end do to a job.
#include <gtest/gtest.h>

#include "tests/server/jobs/fakes.h"

namespace millrace {
namespace {

using v1::Job;
using Ended = v1::WorkerReport::Ended;

class WorkerReportsTest : public JobManagerTest {};

TEST_F(WorkerReportsTest, EventsAreNumberedWithoutGapsAndProgressFollows) {
  CreateRunningJob("a");
  std::vector<v1::WorkerReport> reports;
  for (int64_t i = 3; i <= 50; ++i) reports.push_back(StepReport(i, i - 1, 1.0 / i));
  EXPECT_EQ(*Report("a", 1, reports), 50);
  int64_t expected = 1;
  for (const v1::JobEvent& event : Events("a")) EXPECT_EQ(event.sequence(), expected++);
  const Job job = Get("a");
  EXPECT_EQ(job.last_sequence(), expected - 1);
  EXPECT_EQ(job.progress().last_step().step(), 49);
  EXPECT_NEAR(job.progress().remaining().seconds(), 0.5 * 51, 1);
}

TEST_F(WorkerReportsTest, TheJobHasThePlanOfItsNewestStart) {
  CreateJob("a");
  EXPECT_FALSE(Get("a").has_plan());
  ASSERT_TRUE(launcher_->WaitForStart("a", 1));
  v1::WorkerReport prepared = PreparedReport(1);
  prepared.mutable_prepared()->mutable_plan()->set_step_seconds(1.5);
  ASSERT_TRUE(Report("a", 1, {prepared}).ok());
  EXPECT_EQ(Get("a").plan().step_seconds(), 1.5);
  Exit("a", 1);
  ASSERT_TRUE(launcher_->WaitForStart("a", 2));
  prepared.mutable_prepared()->mutable_plan()->set_step_seconds(2);
  ASSERT_TRUE(Report("a", 2, {prepared}).ok());
  EXPECT_EQ(Get("a").plan().step_seconds(), 2);
}

TEST_F(WorkerReportsTest, ATraceIsAnEvent) {
  CreateRunningJob("a");
  v1::WorkerReport report;
  report.set_sequence(3);
  report.mutable_trace()->set_first_step(10);
  report.mutable_trace()->set_path("traces/steps-10-12.json");
  ASSERT_TRUE(Report("a", 1, {report}).ok());
  EXPECT_EQ(Events("a").back().trace().path(), "traces/steps-10-12.json");
}

TEST_F(WorkerReportsTest, ReportsSentAgainAreStoredOnce) {
  CreateRunningJob("a");
  EXPECT_EQ(*Report("a", 1, {StepReport(2, 1), StepReport(3, 2)}), 3);
  EXPECT_EQ(*Report("a", 1, {StepReport(2, 1), StepReport(3, 2)}), 3);
  int steps = 0;
  for (const v1::JobEvent& event : Events("a")) steps += event.has_step();
  EXPECT_EQ(steps, 2);
}

TEST_F(WorkerReportsTest, AReportThatLeavesOneOutIsRefusedWhole) {
  CreateRunningJob("a");
  const auto refused = Report("a", 1, {StepReport(3, 2), StepReport(5, 4)});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(*Report("a", 1, {}), 2);
}

TEST_F(WorkerReportsTest, UnknownJobsAndAttemptsAreTold) {
  EXPECT_EQ(ReasonOf(Report("nobody", 1, {}).status()), "JOB_NOT_FOUND");
  CreateRunningJob("a");
  EXPECT_EQ(ReasonOf(Report("a", 9, {}).status()), "ATTEMPT_NOT_FOUND");
}

TEST_F(WorkerReportsTest, LateReportsNeverOverwriteCancelling) {
  CreateJob("a");
  ASSERT_TRUE(launcher_->WaitForStart("a", 1));
  ASSERT_TRUE(manager_->CancelJob("a").ok());
  EXPECT_EQ(
      *Report("a", 1, {PreparedReport(1), StepReport(2, 1), EndedReport(3, Ended::SUCCEEDED)}), 3);
  EXPECT_EQ(StateOf("a"), Job::CANCELLING);
  Exit("a", 1);
  EXPECT_EQ(StateOf("a"), Job::CANCELLED);
  EXPECT_EQ(StatesSoFar("a"), "QUEUED PREPARING CANCELLING CANCELLED");
}

TEST_F(WorkerReportsTest, LateReportsNeverOverwritePausing) {
  CreateJob("a");
  ASSERT_TRUE(launcher_->WaitForStart("a", 1));
  ASSERT_TRUE(manager_->PauseJob("a").ok());
  ASSERT_TRUE(Report("a", 1, {PreparedReport(1), StepReport(2, 1)}).ok());
  EXPECT_EQ(StateOf("a"), Job::PAUSING);
  // Gone without saving: paused all the same, and the reason is told.
  Exit("a", 1);
  EXPECT_EQ(StateOf("a"), Job::PAUSED);
  EXPECT_EQ(Get("a").reason(), v1::REASON_CRASH);
}

TEST_F(WorkerReportsTest, LastStepDoneBeforeThePauseArrivedSucceeds) {
  CreateRunningJob("a");
  ASSERT_TRUE(manager_->PauseJob("a").ok());
  ASSERT_TRUE(Report("a", 1, {EndedReport(3, Ended::SUCCEEDED)}).ok());
  Exit("a", 1);
  EXPECT_EQ(StateOf("a"), Job::SUCCEEDED);
}

TEST_F(WorkerReportsTest, ReportsOfAnAttemptThatIsOverAreDroppedAndAcknowledged) {
  CreateRunningJob("a");
  Exit("a", 1);
  ASSERT_TRUE(launcher_->WaitForStart("a", 2));
  const int64_t before = Get("a").last_sequence();
  EXPECT_EQ(*Report("a", 1, {StepReport(3, 2), EndedReport(4, Ended::FAILED)}), 4);
  Exit("a", 1);
  EXPECT_EQ(StateOf("a"), Job::PREPARING);
  EXPECT_EQ(Get("a").last_sequence(), before);
}

TEST_F(WorkerReportsTest, CrashedJobStartsAgainBeforeThoseThatWait) {
  CreateRunningJob("a");
  CreateJob("b");
  Exit("a", 1);
  ASSERT_TRUE(launcher_->WaitForStart("a", 2));
  const Job job = Get("a");
  EXPECT_EQ(job.restarts(), 1);
  const v1::JobEvent restarted = Events("a").rbegin()[1];
  EXPECT_EQ(restarted.state_change().to(), Job::QUEUED);
  EXPECT_EQ(restarted.state_change().reason(), v1::REASON_CRASH);
  EXPECT_EQ(StateOf("b"), Job::QUEUED);
}

TEST_F(WorkerReportsTest, CrashesWithoutProgressAreBounded) {
  CreateRunningJob("a");
  for (int32_t attempt = 1; attempt <= 4; ++attempt) {
    ASSERT_TRUE(launcher_->WaitForStart("a", attempt));
    // Always up to the same step, never beyond.
    if (attempt > 1) {
      ASSERT_TRUE(Report("a", attempt, {PreparedReport(1), StepReport(2, 1)}).ok());
    }
    Exit("a", attempt);
  }
  const Job job = Get("a");
  EXPECT_EQ(job.state(), Job::FAILED);
  EXPECT_EQ(job.reason(), v1::REASON_CRASH);
  EXPECT_EQ(launcher_->starts().size(), 4);
}

TEST_F(WorkerReportsTest, ProgressClearsTheCountOfCrashes) {
  CreateRunningJob("a");
  for (int32_t attempt = 1; attempt <= 10; ++attempt) {
    ASSERT_TRUE(launcher_->WaitForStart("a", attempt));
    if (attempt > 1) {
      ASSERT_TRUE(Report("a", attempt, {PreparedReport(1), StepReport(2, attempt)}).ok());
    }
    Exit("a", attempt);
  }
  EXPECT_TRUE(launcher_->WaitForStart("a", 11));
}

TEST_F(WorkerReportsTest, ACheckpointBeyondTheLastClearsTheCountOfCrashes) {
  CreateRunningJob("a");
  ASSERT_TRUE(Report("a", 1, {StepReport(3, 50)}).ok());
  // Each goes on from the checkpoint before and ends below step 50, which the first had reached.
  for (int32_t attempt = 1; attempt <= 10; ++attempt) {
    ASSERT_TRUE(launcher_->WaitForStart("a", attempt));
    if (attempt > 1) {
      v1::WorkerReport checkpoint;
      checkpoint.set_sequence(3);
      checkpoint.mutable_checkpoint()->set_step(attempt);
      ASSERT_TRUE(
          Report("a", attempt, {PreparedReport(1), StepReport(2, attempt), checkpoint}).ok());
    }
    Exit("a", attempt);
  }
  EXPECT_TRUE(launcher_->WaitForStart("a", 11));
}

TEST_F(WorkerReportsTest, ReportsLeftOnDiskAreStoredWithTheExit) {
  CreateRunningJob("a");
  WorkerExit exit{.description = "exit code 0"};
  exit.unsent = {StepReport(2, 1), StepReport(3, 100), EndedReport(4, Ended::SUCCEEDED)};
  std::promise<void> stored;
  exit.on_stored = [&] { stored.set_value(); };
  manager_->WorkerExited("a", 1, exit);
  stored.get_future().wait();
  EXPECT_EQ(StateOf("a"), Job::SUCCEEDED);
  EXPECT_EQ(Get("a").progress().last_step().step(), 100);
}

TEST_F(WorkerReportsTest, ReportsLeftOnDiskThatLeaveOneOutDoNotHoldUpTheExit) {
  CreateRunningJob("a");
  WorkerExit exit{.description = "exit code 0"};
  exit.unsent = {EndedReport(9, Ended::SUCCEEDED)};
  manager_->WorkerExited("a", 1, exit);
  EXPECT_TRUE(launcher_->WaitForStart("a", 2));
}

TEST_F(WorkerReportsTest, OutOfMemoryIsKeptAsTheReason) {
  CreateRunningJob("a");
  Exit("a", 1, v1::REASON_OUT_OF_MEMORY);
  ASSERT_TRUE(launcher_->WaitForStart("a", 2));
  EXPECT_EQ(Events("a").rbegin()[1].state_change().reason(), v1::REASON_OUT_OF_MEMORY);
}

TEST_F(WorkerReportsTest, WatcherThatReconnectsMissesNothingAndSeesNothingTwice) {
  CreateRunningJob("a");
  std::vector<int64_t> seen;
  int64_t last = 0;
  for (int64_t i = 3; i < 40; ++i) {
    ASSERT_TRUE(Report("a", 1, {StepReport(i, i - 1)}).ok());
    if (i % 7 != 0) continue;
    const auto page = manager_->ReadEvents("a", last, 3);
    ASSERT_TRUE(page.ok());
    EXPECT_FALSE(page->complete);
    for (const auto& event : page->events) seen.push_back(last = event.sequence());
  }
  ASSERT_TRUE(Report("a", 1, {EndedReport(40, Ended::SUCCEEDED)}).ok());
  Exit("a", 1);
  bool complete = false;
  while (!complete) {
    const auto page = manager_->ReadEvents("a", last, 3);
    ASSERT_TRUE(page.ok());
    for (const auto& event : page->events) seen.push_back(last = event.sequence());
    complete = page->complete;
  }
  ASSERT_EQ(static_cast<int64_t>(seen.size()), Get("a").last_sequence());
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], static_cast<int64_t>(i) + 1);
}

}  // namespace
}  // namespace millrace
