// A daemon that ends, one way or another, and the next one that finds what it left.
#include <gtest/gtest.h>

#include "server/jobs/job_folders.h"
#include "tests/server/jobs/fakes.h"

namespace millrace {
namespace {

using v1::Job;
using Ended = v1::WorkerReport::Ended;

class RestartTest : public JobManagerTest {};

TEST_F(RestartTest, AdoptsAWorkerThatOutlivedTheDaemon) {
  CreateRunningJob("a");
  CreateJob("b");
  StopManager();
  alive_at_start_ = {"a"};
  StartManager();
  EXPECT_EQ(StateOf("a"), Job::RUNNING);
  // It tells what it did meanwhile, from the last acknowledged report on.
  EXPECT_EQ(*Report("a", 1, {}), 2);
  EXPECT_EQ(*Report("a", 1, {StepReport(2, 1), StepReport(3, 2), StepReport(4, 3)}), 4);
  EXPECT_EQ(Get("a").progress().last_step().step(), 3);
  EXPECT_TRUE(launcher_->starts().empty());
  ASSERT_TRUE(Report("a", 1, {EndedReport(5, Ended::SUCCEEDED)}).ok());
  Exit("a", 1);
  EXPECT_EQ(StateOf("a"), Job::SUCCEEDED);
  EXPECT_TRUE(launcher_->WaitForStart("b", 1));
}

TEST_F(RestartTest, RestartsAJobWhoseWorkerIsGone) {
  CreateRunningJob("a");
  CreateJob("b");
  StopManager();
  StartManager();
  ASSERT_TRUE(launcher_->WaitForStart("a", 2));
  EXPECT_EQ(StateOf("b"), Job::QUEUED);
}

TEST_F(RestartTest, StartsNothingWhenAWorkerMayLiveThatCannotBeWatched) {
  CreateRunningJob("a");
  StopManager();
  store_ = *JobStore::Open(options_.paths.Database(), {});
  launcher_ = std::make_unique<FakeLauncher>();
  launcher_->set_adopt_error(absl::InternalError("too many open files"));
  manager_ = std::make_unique<JobManager>(options_, store_.get(), launcher_.get(), &validator_);
  EXPECT_EQ(manager_->Start().message(), "too many open files");
  EXPECT_EQ(StateOf("a"), Job::RUNNING);
  EXPECT_TRUE(launcher_->starts().empty());
}

TEST_F(RestartTest, RestartsAJobThatWasBeingPrepared) {
  CreateJob("a");
  ASSERT_TRUE(launcher_->WaitForStart("a", 1));
  StopManager();
  StartManager();
  ASSERT_TRUE(launcher_->WaitForStart("a", 2));
}

TEST_F(RestartTest, FinishesWhatWasBeingCancelledAndPaused) {
  options_.max_running_jobs = 2;
  StopManager();
  StartManager();
  CreateRunningJob("a");
  CreateRunningJob("b");
  ASSERT_TRUE(manager_->CancelJob("a").ok());
  ASSERT_TRUE(manager_->PauseJob("b").ok());
  StopManager();
  StartManager();
  EXPECT_TRUE(WaitForState("a", Job::CANCELLED));
  EXPECT_TRUE(WaitForState("b", Job::PAUSED));
}

TEST_F(RestartTest, AsksAdoptedWorkersAgainToCancelAndPause) {
  options_.max_running_jobs = 2;
  StopManager();
  StartManager();
  CreateRunningJob("a");
  CreateRunningJob("b");
  ASSERT_TRUE(manager_->CancelJob("a").ok());
  ASSERT_TRUE(manager_->PauseJob("b").ok());
  StopManager();
  alive_at_start_ = {"a", "b"};
  StartManager();
  EXPECT_TRUE(launcher_->WaitForCancel("a"));
  EXPECT_TRUE(launcher_->WaitForStop("b", "PAUSE"));
  EXPECT_EQ(StateOf("a"), Job::CANCELLING);
}

TEST_F(RestartTest, EndThatWasStoredBeforeTheDaemonDiedStillCounts) {
  CreateRunningJob("a");
  ASSERT_TRUE(Report("a", 1, {EndedReport(3, Ended::SUCCEEDED)}).ok());
  StopManager();
  StartManager();
  EXPECT_TRUE(WaitForState("a", Job::SUCCEEDED));
}

TEST_F(RestartTest, KillsOfDaemonAndWorkerAreNoCrashesOfTheJob) {
  CreateRunningJob("a");
  for (int i = 0; i < 6; ++i) {
    StopManager();
    StartManager();
    ASSERT_TRUE(launcher_->WaitForStart("a", i + 2));
  }
  EXPECT_EQ(Get("a").restarts(), 0);
}

TEST_F(RestartTest, CrashesAcrossDaemonsAreBounded) {
  CreateRunningJob("a");
  int32_t attempt = 1;
  for (int crashes = 1; crashes <= 3; ++crashes) {
    Exit("a", attempt);
    ASSERT_TRUE(launcher_->WaitForStart("a", ++attempt));
    StopManager();
    StartManager();
    ASSERT_TRUE(launcher_->WaitForStart("a", ++attempt));
    EXPECT_EQ(Get("a").restarts(), crashes);
  }
  Exit("a", attempt);
  EXPECT_EQ(StateOf("a"), Job::FAILED);
}

TEST_F(RestartTest, RemovesWhatADeletionLeftAndNothingElse) {
  CreateRunningJob("a");
  for (const char* id : {"a", "deleted", "unknown"}) {
    std::filesystem::create_directories(options_.paths.Checkpoints(id));
  }
  // The daemon died after the deletion of one job was stored, and before that of the other was.
  ASSERT_TRUE(MarkDeleted(options_.paths, "deleted").ok());
  ASSERT_TRUE(MarkDeleted(options_.paths, "a").ok());
  std::filesystem::create_directories(options_.paths.Trash() + "/deleted-1");
  StopManager();
  StartManager();
  EXPECT_TRUE(std::filesystem::exists(options_.paths.Checkpoints("a")));
  EXPECT_FALSE(std::filesystem::exists(options_.paths.Job("deleted")));
  EXPECT_FALSE(std::filesystem::exists(options_.paths.Trash()));
  // Of a job that the store has lost: the last trace of what was trained.
  EXPECT_TRUE(std::filesystem::exists(options_.paths.Checkpoints("unknown")));
}

TEST_F(RestartTest, ANewJobNeitherContinuesNorLosesWhatItFindsUnderItsId) {
  std::filesystem::create_directories(options_.paths.Checkpoints("a") + "/7");
  CreateRunningJob("a");
  EXPECT_FALSE(std::filesystem::exists(options_.paths.Checkpoints("a")));
  int kept = 0;
  for (const auto& entry : std::filesystem::directory_iterator(options_.paths.Unclaimed())) {
    kept += std::filesystem::exists(entry.path() / "checkpoints" / "7");
  }
  EXPECT_EQ(kept, 1);
}

TEST_F(RestartTest, DrainStopsWorkersWithACheckpointAndTheNextStartResumesThem) {
  CreateRunningJob("a");
  CreateJob("b");
  manager_->BeginDrain();
  EXPECT_TRUE(launcher_->WaitForStop("a", "SHUTDOWN"));
  const auto refused = manager_->CreateJob(MakeCreateRequest("c"));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(refused.status()), "DRAINING");
  EXPECT_FALSE(manager_->WaitUntilIdle(absl::ZeroDuration()));
  ASSERT_TRUE(Report("a", 1, {EndedReport(3, Ended::STOPPED)}).ok());
  Exit("a", 1);
  EXPECT_TRUE(manager_->WaitUntilIdle(kPatience));
  EXPECT_EQ(StateOf("a"), Job::QUEUED);
  EXPECT_EQ(Get("a").reason(), v1::REASON_SHUTDOWN);
  EXPECT_EQ(launcher_->starts().size(), 1);

  StopManager();
  StartManager();
  ASSERT_TRUE(launcher_->WaitForStart("a", 2));
  EXPECT_EQ(Get("a").restarts(), 0);
  EXPECT_EQ(StateOf("b"), Job::QUEUED);
}

TEST_F(RestartTest, WorkerThatStoppedAfterTheDaemonHadGoneIsNoCrash) {
  CreateRunningJob("a");
  manager_->BeginDrain();
  StopManager();
  StartManager();
  ASSERT_TRUE(launcher_->WaitForStart("a", 2));
  EXPECT_EQ(Get("a").restarts(), 0);
}

}  // namespace
}  // namespace millrace
