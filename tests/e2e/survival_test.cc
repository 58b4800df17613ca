// What is killed, stopped and started again: nothing is lost, nothing runs twice, and the numbers
// stay the same to the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/e2e/system.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

// How often to strike in one run; survival_long_test has more.
int MomentCount() {
  const char* count = std::getenv("MILLRACE_MOMENTS");
  return count == nullptr ? 3 : std::atoi(count);
}

constexpr int kSteps = 3000;

JobOptions Job() {
  JobOptions options;
  options.steps = kSteps;
  options.checkpoint_every = 250;
  return options;
}

class SurvivalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    system_.StartDaemon();
    ASSERT_FALSE(HasFatalFailure());
    system_.UploadText();
  }

  // Steps at which to strike: one at random in each part of the run but its end.
  std::vector<int64_t> Moments() {
    uint32_t seed = std::random_device()();
    RecordProperty("seed", absl::StrCat(seed));
    fprintf(stderr, "random moments from seed %u\n", seed);
    std::minstd_rand random(seed);
    std::vector<int64_t> moments;
    int part = kSteps * 9 / 10 / MomentCount();
    for (int i = 0; i < MomentCount(); ++i) {
      moments.push_back(i * part + 1 + static_cast<int64_t>(random() % part));
    }
    return moments;
  }

  const std::map<std::string, std::string>& Undisturbed() {
    if (undisturbed_.empty()) {
      system_.Submit("undisturbed", Job());
      EXPECT_EQ(system_.WaitForEnd("undisturbed").state(), v1::Job::SUCCEEDED);
      undisturbed_ = system_.StateHashes("undisturbed");
      EXPECT_FALSE(undisturbed_.empty());
    }
    return undisturbed_;
  }

  void ExpectSameEnd(const std::string& id) {
    v1::Job job = system_.WaitForEnd(id);
    EXPECT_EQ(job.state(), v1::Job::SUCCEEDED) << job.ShortDebugString();
    EXPECT_EQ(system_.StateHashes(id), Undisturbed());
    int64_t sequence = 0;
    for (const v1::JobEvent& event : system_.AllEvents(id)) EXPECT_EQ(event.sequence(), ++sequence);
    EXPECT_EQ(job.last_sequence(), sequence);
  }

  System system_;
  std::map<std::string, std::string> undisturbed_;
};

TEST_F(SurvivalTest, AKilledWorkerIsStartedAgainAndTheWeightsAreTheSame) {
  Undisturbed();
  system_.Submit("struck", Job());
  for (int64_t moment : Moments()) {
    system_.WaitForStep("struck", moment);
    system_.KillWorker();
  }
  ExpectSameEnd("struck");
  EXPECT_GT(system_.GetJob("struck").attempt(), 1);
  EXPECT_THAT(system_.Metrics(), HasSubstr("millrace_job_restarts_total{reason=\"CRASH\"}"));
}

TEST_F(SurvivalTest, AWorkerThatIsKilledBeforeItsFirstStepIsStartedAgain) {
  Undisturbed();
  system_.Submit("struck", Job());
  ASSERT_TRUE(Eventually([&] { return !system_.Workers().empty(); }));
  system_.KillWorker();
  ExpectSameEnd("struck");
}

TEST_F(SurvivalTest, AKilledDaemonFindsItsWorkerAgain) {
  Undisturbed();
  system_.Submit("struck", Job());
  for (int64_t moment : Moments()) {
    system_.WaitForStep("struck", moment);
    std::vector<pid_t> workers = system_.Workers();
    system_.KillDaemon();
    // It goes on alone.
    EXPECT_EQ(system_.Workers(), workers);
    system_.StartDaemon();
  }
  ExpectSameEnd("struck");
  EXPECT_EQ(system_.GetJob("struck").attempt(), 1);
}

TEST_F(SurvivalTest, BothKilledTheJobGoesOnFromItsCheckpoint) {
  Undisturbed();
  system_.Submit("struck", Job());
  for (int64_t moment : Moments()) {
    system_.WaitForStep("struck", moment);
    system_.KillDaemon();
    system_.KillWorker();
    ASSERT_TRUE(Eventually([&] { return system_.Workers().empty(); }));
    system_.StartDaemon();
  }
  ExpectSameEnd("struck");
}

TEST_F(SurvivalTest, ADaemonThatIsStoppedSavesAndTheNextOneGoesOn) {
  Undisturbed();
  // No checkpoint but the last is due, so that the stop never falls on one that is saved already.
  JobOptions options = Job();
  options.checkpoint_every = kSteps;
  system_.Submit("struck", options);
  system_.WaitForStep("struck", 150);
  EXPECT_EQ(system_.StopDaemon(), 0) << system_.daemon().Errors();
  EXPECT_TRUE(system_.Workers().empty());
  system_.StartDaemon();
  ExpectSameEnd("struck");
  bool saved = false;
  for (const v1::JobEvent& event : system_.AllEvents("struck")) {
    saved = saved || event.checkpoint().trigger() == "SHUTDOWN";
  }
  EXPECT_TRUE(saved);
}

TEST_F(SurvivalTest, WatchAndLogsGoOnAcrossARestartOfTheDaemon) {
  system_.Submit("watched", Job());
  std::unique_ptr<Process> watch = system_.Start({"watch", "watched", "-o", "json"});
  std::unique_ptr<Process> logs = system_.Start({"logs", "watched", "-f"});
  // A command that has not reached its daemon yet would say so and end.
  ASSERT_TRUE(watch->WaitForOutput("sequence"));
  ASSERT_TRUE(logs->WaitForOutput("prepared"));
  system_.WaitForStep("watched", 20);
  system_.KillDaemon();
  system_.StartDaemon();
  system_.WaitForStep("watched", 200);
  EXPECT_EQ(system_.StopDaemon(), 0);
  system_.StartDaemon();
  EXPECT_EQ(watch->Wait(), 0) << watch->Errors();
  EXPECT_EQ(logs->Wait(), 0) << logs->Errors();
  std::vector<std::string> lines = absl::StrSplit(watch->Output(), '\n', absl::SkipEmpty());
  EXPECT_EQ(static_cast<int64_t>(lines.size()), system_.GetJob("watched").last_sequence());
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].find(absl::StrCat("{\"sequence\":\"", i + 1, "\"")), 0) << lines[i];
  }
  // Both attempts' logs, whole.
  EXPECT_EQ(logs->Output(), system_.Run({"logs", "watched", "--attempt", "1"}).output +
                                system_.Run({"logs", "watched", "--attempt", "2"}).output);
}

}  // namespace
}  // namespace millrace
