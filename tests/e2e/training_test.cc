// The path of a person: text up, job through, checkpoint down; pause, cancel, watching.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/lib/sha256.h"
#include "google/protobuf/util/json_util.h"
#include "tests/e2e/system.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Long enough to be caught in the middle.
JobOptions LongJob() {
  JobOptions options;
  options.steps = 10'000'000;
  options.checkpoint_every = 0;
  return options;
}

class TrainingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    system_.StartDaemon();
    ASSERT_FALSE(HasFatalFailure());
    system_.UploadText();
  }

  System system_;
};

TEST_F(TrainingTest, AJobTrainsOnRealTextAndItsCheckpointComesBackWhole) {
  JobOptions options;
  options.steps = 200;
  options.checkpoint_every = 100;
  options.extra = "sample: {every_steps: 100, prompts: [\"This \"], max_tokens: 16}\n";
  std::string file = system_.WriteJobFile(JobFileText(options));
  RunResult run = system_.Run({"submit", file, "--id", "tiny", "--watch"});
  ASSERT_EQ(run.exit_code, 0) << run.output << run.errors;
  EXPECT_THAT(run.output, HasSubstr("RUNNING"));
  EXPECT_THAT(run.output, HasSubstr("step 200/200  100%"));
  EXPECT_THAT(run.output, HasSubstr("evaluation at step 200"));
  EXPECT_THAT(run.output, HasSubstr("sample at step 200"));
  EXPECT_THAT(run.output, HasSubstr("This "));
  EXPECT_THAT(run.output, HasSubstr("tiny SUCCEEDED after"));

  std::vector<v1::JobEvent> events = system_.AllEvents("tiny");
  double first = 0;
  double last = 0;
  int64_t steps = 0;
  for (const v1::JobEvent& event : events) {
    if (!event.has_step()) continue;
    EXPECT_EQ(event.step().step(), ++steps);
    if (first == 0) first = event.step().loss();
    last = event.step().loss();
  }
  EXPECT_EQ(steps, 200);
  // A byte-level model begins at ln 257 and knows the letters' frequencies soon.
  EXPECT_NEAR(first, 5.55, 0.4);
  EXPECT_LT(last, 3.6);

  RunResult show = system_.Run({"show", "tiny", "-o", "json"});
  v1::Job job;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(show.output, &job).ok()) << show.output;
  EXPECT_EQ(job.state(), v1::Job::SUCCEEDED);
  EXPECT_EQ(job.progress().last_step().step(), 200);
  EXPECT_EQ(job.progress().last_checkpoint_step(), 200);
  EXPECT_EQ(job.last_sequence(), static_cast<int64_t>(events.size()));

  RunResult logs = system_.Run({"logs", "tiny", "-f"});
  EXPECT_EQ(logs.exit_code, 0) << logs.errors;
  EXPECT_NE(logs.output, "");
  RunResult tail = system_.Run({"logs", "tiny", "--tail", "1"});
  EXPECT_TRUE(logs.output.size() >= tail.output.size() &&
              logs.output.substr(logs.output.size() - tail.output.size()) == tail.output);

  RunResult list = system_.Run({"checkpoints", "list", "tiny"});
  EXPECT_THAT(list.output, HasSubstr(" 200 "));
  EXPECT_THAT(list.output, HasSubstr(" 100 "));
  std::string target = system_.folder() + "/model";
  RunResult download = system_.Run({"checkpoints", "download", "tiny", "latest", "-d", target});
  ASSERT_EQ(download.exit_code, 0) << download.errors;
  for (const auto& [path, sha256] : system_.StateHashes("tiny")) {
    Sha256 hash;
    hash.Update(ReadWholeFile(target + "/" + path));
    EXPECT_EQ(hash.Finish(), sha256) << path;
  }
  EXPECT_THAT(ReadWholeFile(target + "/config.json"), HasSubstr("\"model_type\""));

  // The job file that comes back makes the same job.
  RunResult yaml = system_.Run({"show", "tiny", "-o", "yaml"});
  RunResult check = system_.Run({"submit", system_.WriteJobFile(yaml.output), "--dry-run"});
  EXPECT_EQ(check.exit_code, 0) << check.errors << yaml.output;

  RunResult best = system_.Run({"checkpoints", "show", "tiny", "best"});
  EXPECT_EQ(best.exit_code, 0) << best.errors;
  EXPECT_EQ(system_.Run({"delete", "tiny"}).exit_code, 0);
  EXPECT_EQ(system_.Run({"show", "tiny"}).exit_code, 4);
  EXPECT_EQ(system_.Run({"datasets", "delete", "licences"}).exit_code, 0);
}

TEST_F(TrainingTest, APausedJobGivesBackItsProcessAndEndsAsIfItHadNotBeenPaused) {
  JobOptions options;
  options.steps = 3000;
  options.checkpoint_every = 0;
  system_.Submit("whole", options);
  ASSERT_EQ(system_.WaitForEnd("whole").state(), v1::Job::SUCCEEDED);
  system_.Submit("paused", options);
  system_.WaitForStep("paused", 50);
  RunResult pause = system_.Run({"pause", "paused", "--wait"});
  ASSERT_EQ(pause.exit_code, 0) << pause.errors;
  EXPECT_THAT(pause.output, HasSubstr("PAUSED"));
  EXPECT_TRUE(system_.Workers().empty());
  int64_t step = system_.GetJob("paused").progress().last_step().step();
  EXPECT_GE(step, 50);
  EXPECT_LT(step, 3000);
  EXPECT_EQ(system_.GetJob("paused").progress().last_checkpoint_step(), step);
  EXPECT_EQ(system_.Run({"resume", "paused"}).exit_code, 0);
  ASSERT_EQ(system_.WaitForEnd("paused").state(), v1::Job::SUCCEEDED);
  EXPECT_FALSE(system_.StateHashes("whole").empty());
  EXPECT_EQ(system_.StateHashes("whole"), system_.StateHashes("paused"));
  EXPECT_EQ(system_.GetJob("paused").attempt(), 2);
}

TEST_F(TrainingTest, TheSameJobFileWithoutADaemonMakesTheSameWeights) {
  JobOptions options;
  system_.Submit("served", options);
  ASSERT_EQ(system_.WaitForEnd("served").state(), v1::Job::SUCCEEDED);
  options.dataset = "/usr/share/common-licenses";
  std::string folder = system_.folder() + "/local";
  RunResult local = RunProgram({ProgramPath("server/worker/millrace-worker"), "--spec",
                                system_.WriteJobFile(JobFileText(options)), "--dir", folder});
  ASSERT_EQ(local.exit_code, 0) << local.errors;
  EXPECT_EQ(std::count(local.output.begin(), local.output.end(), '\n'), options.steps);
  std::map<std::string, std::string> hashes = system_.StateHashes("served");
  EXPECT_FALSE(hashes.empty());
  for (const auto& [path, sha256] : hashes) {
    Sha256 hash;
    hash.Update(ReadWholeFile(absl::StrCat(folder, "/checkpoints/", options.steps, "/", path)));
    EXPECT_EQ(hash.Finish(), sha256) << path;
  }
}

TEST_F(TrainingTest, OtherRecipesAndOptimizersTrainAndGoOnAsIfTheyHadNotBeenPaused) {
  JobOptions options;
  options.steps = 3000;
  options.checkpoint_every = 0;
  options.learning_rate = 3e-4;
  options.optimizer = "lion";
  options.extra = "precision: {recipe: tiny}\n";
  system_.Submit("whole", options);
  system_.Submit("paused", options);
  ASSERT_EQ(system_.WaitForEnd("whole").state(), v1::Job::SUCCEEDED);
  EXPECT_LT(system_.GetJob("whole").progress().last_step().loss(), 5);
  system_.WaitForStep("paused", 20);
  ASSERT_EQ(system_.Run({"pause", "paused", "--wait"}).exit_code, 0);
  ASSERT_EQ(system_.Run({"resume", "paused"}).exit_code, 0);
  ASSERT_EQ(system_.WaitForEnd("paused").state(), v1::Job::SUCCEEDED);
  EXPECT_FALSE(system_.StateHashes("whole").empty());
  EXPECT_EQ(system_.StateHashes("whole"), system_.StateHashes("paused"));
  const RunResult yaml = system_.Run({"show", "whole", "-o", "yaml"});
  EXPECT_THAT(yaml.output, HasSubstr("name: lion"));
  EXPECT_THAT(yaml.output, HasSubstr("recipe: tiny"));
  const RunResult check = system_.Run({"submit", system_.WriteJobFile(yaml.output), "--dry-run"});
  EXPECT_EQ(check.exit_code, 0) << check.errors << yaml.output;
}

TEST_F(TrainingTest, ACancelledJobIsGoneWhenItIsReportedAsEnded) {
  system_.Submit("long", LongJob());
  system_.WaitForStep("long", 5);
  EXPECT_EQ(system_.Workers().size(), 1);
  RunResult cancel = system_.Run({"cancel", "long", "--wait"});
  ASSERT_EQ(cancel.exit_code, 0) << cancel.errors;
  EXPECT_THAT(cancel.output, HasSubstr("jobs/long CANCELLED"));
  EXPECT_TRUE(system_.Workers().empty());
  EXPECT_EQ(system_.Run({"watch", "long"}).exit_code, 10);
  EXPECT_EQ(system_.Run({"cancel", "long"}).exit_code, 0);
  EXPECT_EQ(system_.Run({"pause", "long"}).exit_code, 5);
}

TEST_F(TrainingTest, JobsWaitTheirTurn) {
  system_.Submit("first", LongJob());
  system_.Submit("second");
  system_.WaitForStep("first", 1);
  EXPECT_EQ(system_.GetJob("second").state(), v1::Job::QUEUED);
  EXPECT_EQ(system_.GetJob("second").queue_position(), 1);
  EXPECT_THAT(system_.Run({"jobs"}).output, HasSubstr("QUEUED #1"));
  EXPECT_EQ(system_.Run({"cancel", "first", "--wait"}).exit_code, 0);
  EXPECT_EQ(system_.WaitForEnd("second").state(), v1::Job::SUCCEEDED);
}

TEST_F(TrainingTest, CtrlCInWatchLeavesTheJobRunning) {
  system_.Submit("long", LongJob());
  std::unique_ptr<Process> watch = system_.Start({"watch", "long"});
  ASSERT_TRUE(watch->WaitForOutput("step 1/")) << watch->Errors();
  watch->Signal(SIGINT);
  EXPECT_EQ(watch->Wait(), 130);
  EXPECT_THAT(watch->Errors(), HasSubstr("jobs/long goes on"));
  EXPECT_EQ(system_.GetJob("long").state(), v1::Job::RUNNING);
}

TEST_F(TrainingTest, MetricsFollowTheJobAndEndWithIt) {
  system_.Submit("long", LongJob());
  system_.WaitForStep("long", 3);
  std::string metrics = system_.Metrics();
  EXPECT_THAT(metrics, HasSubstr("millrace_build_info"));
  EXPECT_THAT(metrics, HasSubstr("millrace_jobs{state=\"RUNNING\"} 1"));
  EXPECT_THAT(metrics, HasSubstr("millrace_train_loss{job_id=\"long\"}"));
  EXPECT_THAT(metrics, HasSubstr("millrace_train_predicted_step_seconds{job_id=\"long\"}"));
  EXPECT_THAT(metrics, HasSubstr("millrace_stream_stall_seconds_total{cause=\"optimizer\""));
  EXPECT_THAT(metrics, HasSubstr("grpc_server_handled_total"));
  EXPECT_EQ(system_.Run({"cancel", "long", "--wait"}).exit_code, 0);
  EXPECT_THAT(system_.Metrics(), Not(HasSubstr("job_id=\"long\"")));
}

TEST_F(TrainingTest, InfoShowsTheBox) {
  RunResult info = system_.Run({"info"});
  EXPECT_EQ(info.exit_code, 0);
  EXPECT_THAT(info.output, HasSubstr("Cores"));
  EXPECT_THAT(info.output, HasSubstr("cpu"));
}

}  // namespace
}  // namespace millrace
