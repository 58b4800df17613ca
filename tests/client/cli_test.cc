// The `millrace` command against a daemon in this process: what it prints and how it ends.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/exit_codes.h"
#include "client/cli/run.h"
#include "tests/client/fake_daemon.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// 2026-12-01 12:00:00 UTC.
constexpr int64_t kNow = 1796126400;

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
  return message;
}

class CliTest : public ::testing::Test {
 protected:
  int Run(std::vector<std::string> arguments) {
    out_.str("");
    error_.str("");
    arguments.insert(arguments.begin(), {"--server", daemon_.address()});
    Environment environment;
    environment.in = &in_;
    environment.out = &out_;
    environment.error = &error_;
    environment.terminal = terminal_;
    environment.error_terminal = terminal_;
    environment.stop = stop_.get_token();
    environment.now = [] { return absl::FromUnixSeconds(kNow); };
    // The test changes the daemon's state between commands only; passing through its lock makes
    // that visible to its threads, and theirs to the test.
    { std::lock_guard<std::mutex> lock(daemon_.mutex); }
    int code = RunCommand(arguments, environment);
    { std::lock_guard<std::mutex> lock(daemon_.mutex); }
    return code;
  }

  std::string JobFile(const std::string& text) {
    std::string path =
        absl::StrCat(::testing::TempDir(), "/",
                     ::testing::UnitTest::GetInstance()->current_test_info()->name(), ".yaml");
    std::ofstream(path) << text;
    return path;
  }

  void AddEvent(const std::string& text) { daemon_.AddEvent(Parse<v1::JobEvent>(text)); }

  // A short job from its first event to its last.
  void AddStory(v1::Job::State end) {
    daemon_.job = Parse<v1::Job>(R"(
      name: "jobs/plays" state: RUNNING spec { name: "small" train { steps: 4 } }
      start_time { seconds: 100 } end_time { seconds: 165 }
      progress { total_steps: 4 last_checkpoint_step: 4 last_evaluation { step: 4 loss: 1.5 } })");
    daemon_.job.set_state(end);
    AddEvent("attempt: 1 state_change { from: QUEUED to: PREPARING }");
    AddEvent("attempt: 1 state_change { from: PREPARING to: RUNNING }");
    for (int step = 1; step <= 4; ++step) {
      AddEvent(absl::StrCat("time { seconds: ", step * 20, " } attempt: 1 step { step: ", step,
                            " loss: ", 6 - step, " learning_rate: 0.001 step_seconds: 20",
                            " tokens_per_second: 51.2 speed_of_light_ratio: 0.5 }"));
    }
    AddEvent("attempt: 1 evaluation { step: 4 loss: 1.5 tokens: 2048 seconds: 0.25 }");
    AddEvent("attempt: 1 checkpoint { step: 4 size_bytes: 3145728 seconds: 0.5 trigger: 'FINAL' }");
    AddEvent("attempt: 1 sample { step: 4 prompt: 'Once' text: ' upon\\n\\x1b[2Ja time' }");
    AddEvent(absl::StrCat("attempt: 1 state_change { from: RUNNING to: ", v1::Job::State_Name(end),
                          " }"));
  }

  FakeDaemon daemon_;
  Terminal terminal_;
  std::stop_source stop_;
  std::istringstream in_;
  std::ostringstream out_;
  std::ostringstream error_;
};

TEST_F(CliTest, ListsJobsInAlignedColumnsFromAllPages) {
  daemon_.listed_jobs = {
      Parse<v1::Job>(R"(name: "jobs/a-long-name" state: QUEUED queue_position: 2
                        create_time { seconds: 1796126397 } spec { name: "one" train { steps: 10 } })"),
      Parse<v1::Job>(R"(name: "jobs/b" state: RUNNING create_time { seconds: 1796126208 }
                        spec { name: "\033[2Jtwo" train { steps: 2000 } }
                        progress { total_steps: 2000 last_step { step: 345 loss: 2.34567 }
                                   remaining { seconds: 3700 } })"),
      Parse<v1::Job>(R"(name: "jobs/c" state: SUCCEEDED create_time { seconds: 1795000000 }
                        progress { total_steps: 5 last_step { step: 5 loss: 10 } })"),
  };
  EXPECT_EQ(Run({"jobs"}), 0);
  EXPECT_EQ(out_.str(),
            "JOB          STATE              STEP     LOSS   LEFT  CREATED     NAME\n"
            "a-long-name  QUEUED #2       0/10 0%        -      -  3s ago      one\n"
            "b            RUNNING    345/2000 17%   2.3457  1h01m  3m12s ago   ?[2Jtwo\n"
            "c            SUCCEEDED      5/5 100%  10.0000      -  13d00h ago\n");
  EXPECT_EQ(Run({"jobs", "-n", "1"}), 0);
  EXPECT_THAT(out_.str(), Not(HasSubstr("SUCCEEDED")));
  EXPECT_THAT(error_.str(), HasSubstr("--all"));
}

TEST_F(CliTest, SaysThatThereAreNoJobs) {
  EXPECT_EQ(Run({"jobs"}), 0);
  EXPECT_EQ(out_.str(), "no jobs\n");
  EXPECT_EQ(Run({"jobs", "-o", "json"}), 0);
  EXPECT_EQ(out_.str(), "{\"jobs\":[],\"next_page_token\":\"\"}\n");
}

TEST_F(CliTest, RefusesAStateThatDoesNotExist) {
  EXPECT_EQ(Run({"jobs", "--state", "sleeping"}), kExitInvalidInput);
  EXPECT_THAT(error_.str(), HasSubstr("--state: \"sleeping\" is none of QUEUED, PREPARING"));
}

TEST_F(CliTest, PrintsProtoJsonWithNamesKept) {
  daemon_.job = Parse<v1::Job>(R"(name: "jobs/plays" state: FAILED reason: REASON_CRASH attempt: 2
                                  create_time { seconds: 0 nanos: 5000000 })");
  EXPECT_EQ(Run({"show", "plays", "-o", "json"}), 0);
  std::string json = out_.str();
  EXPECT_EQ(std::count(json.begin(), json.end(), '\n'), 1);
  v1::Job job;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(out_.str(), &job).ok());
  EXPECT_EQ(job.DebugString(), daemon_.job.DebugString());
  EXPECT_THAT(out_.str(), HasSubstr("\"create_time\":\"1970-01-01T00:00:00.005Z\""));
  EXPECT_THAT(out_.str(), HasSubstr("\"queue_position\":0"));
}

TEST_F(CliTest, ShowsAJobAsItsJobFile) {
  daemon_.job = Parse<v1::Job>(R"(name: "jobs/plays" spec { name: "small" train { steps: 5 }
                                  memory { device_budget_bytes: 1048576 } })");
  EXPECT_EQ(Run({"show", "jobs/plays", "-o", "yaml"}), 0);
  EXPECT_EQ(out_.str(), "name: small\ntrain:\n  steps: 5\nmemory:\n  device_budget: 1MiB\n");
}

TEST_F(CliTest, ShowsAJobForAPerson) {
  daemon_.job = Parse<v1::Job>(R"(
    name: "jobs/plays" state: FAILED reason: REASON_NON_FINITE_LOSS
    message: "the loss was nan at step 12" spec { name: "small" train { steps: 20 } }
    create_time { seconds: 1796126340 } attempt: 1
    progress { total_steps: 20 last_checkpoint_step: 10
      last_step { step: 11 loss: 2.5 learning_rate: 0.0003 gradient_norm: 1.25 step_seconds: 0.5
                  tokens_per_second: 12345 speed_of_light_ratio: 0.456 total_tokens: 123456 }
      memory { pools { purpose: "weights" bytes: 1048576 } peak_resident_bytes: 2097152 } })");
  EXPECT_EQ(Run({"show", "plays"}), 0);
  EXPECT_EQ(out_.str(),
            "Job            plays\n"
            "Name           small\n"
            "State          FAILED (NON_FINITE_LOSS): the loss was nan at step 12\n"
            "Created        2026-12-01 11:59:00 (1m00s ago)\n"
            "Attempts       1\n"
            "Step           11/20 55%\n"
            "Loss           2.5000\n"
            "Learning rate  0.0003\n"
            "Gradient norm  1.25\n"
            "Speed          12.3k tokens/s, 0.5s a step, 45% of the machine's peak\n"
            "Tokens         123.5k\n"
            "Checkpoint     step 10\n"
            "Memory         weights 1.0 MiB\n"
            "Peak memory    2.0 MiB resident, 0 B on the device\n");
}

TEST_F(CliTest, WatchesAJobInPlainLines) {
  AddStory(v1::Job::SUCCEEDED);
  EXPECT_EQ(Run({"watch", "plays"}), 0);
  EXPECT_THAT(out_.str(),
              ::testing::StartsWith("PREPARING\n"
                                    "RUNNING\n"
                                    "step 1/4  25%  loss 5.0000  lr 1.00e-03  51 tok/s  eta 1m00s\n"
                                    "step 2/4  50%  loss 4.0000  lr 1.00e-03  51 tok/s  eta 40s\n"
                                    "step 3/4  75%  loss 3.0000  lr 1.00e-03  51 tok/s  eta 20s\n"
                                    "step 4/4  100%  loss 2.0000  lr 1.00e-03  51 tok/s\n"
                                    "evaluation at step 4  loss 1.5000  (2.0k tokens in 0.2s)\n"
                                    "checkpoint at step 4  3.0 MiB in 0.5s\n"
                                    "sample at step 4\n"
                                    "  │ Once upon\n"
                                    "  │ ?[2Ja time\n"
                                    "\n"
                                    "loss 5.000 │█   \n"));
  EXPECT_THAT(out_.str(),
              ::testing::EndsWith(
                  "     2.000 │███▁\n"
                  "            step 1 4\n"
                  "\n"
                  "plays SUCCEEDED after 1m05s, 4 steps, loss 5.0000 -> 2.0000, evaluation 1.5000\n"
                  "checkpoint of step 4: millrace checkpoints download plays\n"));
}

TEST_F(CliTest, WatchEndsAsTheJobDoes) {
  AddStory(v1::Job::FAILED);
  EXPECT_EQ(Run({"watch", "plays"}), kExitJobFailed);
  EXPECT_THAT(out_.str(), HasSubstr("what happened: millrace logs plays"));
  daemon_.events.clear();
  AddStory(v1::Job::CANCELLED);
  EXPECT_EQ(Run({"watch", "plays"}), kExitJobCancelled);
}

TEST_F(CliTest, WatchDrawsOneLineOnATerminal) {
  terminal_.interactive = true;
  AddStory(v1::Job::SUCCEEDED);
  EXPECT_EQ(Run({"watch", "plays"}), 0);
  EXPECT_THAT(out_.str(),
              HasSubstr("\r\x1b[Kstep 1/4  25%  loss 5.0000  eta 1m00s  51 tok/s  [███"));
  // What stays on the screen has no progress in it.
  EXPECT_THAT(out_.str(), HasSubstr("\r\x1b[Kevaluation at step 4"));
  EXPECT_THAT(out_.str(), Not(HasSubstr("step 1/4  25%  loss 5.0000  lr")));
}

TEST_F(CliTest, WatchGivesEventsAsJsonLines) {
  AddStory(v1::Job::SUCCEEDED);
  EXPECT_EQ(Run({"watch", "plays", "-o", "json"}), 0);
  std::vector<std::string> lines = absl::StrSplit(out_.str(), '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 10);
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_THAT(lines[i], ::testing::StartsWith(absl::StrCat("{\"sequence\":\"", i + 1, "\"")));
  }
  EXPECT_EQ(error_.str(), "");
}

TEST_F(CliTest, CtrlCLeavesTheJobRunningAndSaysSo) {
  AddStory(v1::Job::SUCCEEDED);
  daemon_.job.set_state(v1::Job::RUNNING);
  std::thread stopper([&] {
    ASSERT_TRUE(daemon_.WaitForCalls("WatchJob", 1));
    stop_.request_stop();
  });
  EXPECT_EQ(Run({"watch", "plays"}), kExitInterrupted);
  stopper.join();
  EXPECT_THAT(error_.str(), HasSubstr("jobs/plays goes on"));
  EXPECT_EQ(daemon_.calls["CancelJob"], 0);
}

TEST_F(CliTest, SubmitsAJobFile) {
  std::string file = JobFile("name: small\ndata: {train: datasets/plays}\n");
  EXPECT_EQ(Run({"submit", file, "--id", "mine"}), 0);
  EXPECT_EQ(daemon_.created.job_id(), "mine");
  EXPECT_EQ(daemon_.created.spec().data().train(), "datasets/plays");
  EXPECT_FALSE(daemon_.created.validate_only());
  EXPECT_EQ(daemon_.created.request_id().size(), 32);
  EXPECT_THAT(out_.str(), ::testing::StartsWith("jobs/mine "));
  std::string first = daemon_.created.request_id();
  EXPECT_EQ(Run({"submit", file}), 0);
  EXPECT_NE(daemon_.created.request_id(), first);
}

TEST_F(CliTest, SubmitsStandardInputForACheck) {
  in_.str("name: small\n");
  EXPECT_EQ(Run({"submit", "-", "--dry-run", "-o", "yaml"}), 0);
  EXPECT_TRUE(daemon_.created.validate_only());
  EXPECT_EQ(out_.str(), "name: small\n");
}

constexpr char kPlan[] = R"(
  fits: true device: "rtx-3080-10gb" device_budget_bytes: 10737418240
  host_budget_bytes: 68719476736
  device_memory { purpose: "slots" bytes: 3221225472 }
  device_memory { purpose: "activations" bytes: 1073741824 }
  host_memory { purpose: "weights" bytes: 21474836480 }
  host_memory { purpose: "activations" bytes: 1048576 }
  choices { name: "weight_slots" value: "3" next_best: "2" next_best_extra_seconds: 0.25 }
  choices { name: "order" value: "layer_major" fixed: true }
  tokens_per_step: 16384 tokens_per_micro_batch: 4096 step_seconds: 13.2
  tokens_per_second: 1241.2 model_flops: 57.3e12 bound: LINK device_idle_ratio: 0.312
  stalls { weights_seconds: 4 data_seconds: 0.05 }
  largest_sequence_length: 8192 largest_micro_batch_tokens: 16384
  assumptions: "the link carries 24 GB/s each way")";

TEST_F(CliTest, PlansAJobForACardThatIsNotThere) {
  *daemon_.plan_response.mutable_plan() = Parse<v1::JobPlan>(kPlan);
  daemon_.plan_response.set_trace("{\"traceEvents\":[]}");
  const std::string trace = absl::StrCat(::testing::TempDir(), "/predicted.json");
  EXPECT_EQ(Run({"plan", JobFile("data: {train: ./plays}\n"), "--device", "rtx-3080-10gb",
                 "--host-memory", "64GiB", "--trace", trace}),
            0)
      << error_.str();
  EXPECT_EQ(daemon_.plan_request.device(), "rtx-3080-10gb");
  EXPECT_EQ(daemon_.plan_request.host_memory_bytes(), int64_t{64} << 30);
  EXPECT_EQ(daemon_.plan_request.spec().data().train(), "./plays");
  EXPECT_TRUE(daemon_.plan_request.trace());
  EXPECT_EQ(out_.str(),
            "Device       rtx-3080-10gb\n"
            "Fits         yes\n"
            "Speed        1.2k tokens/s, 13s a step of 16.4k tokens, 57.3 TFLOP/s\n"
            "Bound by     the link between host and device\n"
            "Idle         31.2% of the step; waits for weights 4.00s, data 50.0ms\n"
            "Sequence     at most 8192 tokens fit\n"
            "Micro-batch  4096 tokens; at most 16384 fit\n"
            "\n"
            "MEMORY         DEVICE      HOST\n"
            "slots         3.0 GiB         -\n"
            "activations   1.0 GiB   1.0 MiB\n"
            "weights             -  20.0 GiB\n"
            "total         4.0 GiB  20.0 GiB\n"
            "budget       10.0 GiB  64.0 GiB\n"
            "\n"
            "CHOICE        VALUE                NEXT BEST   COSTS\n"
            "weight_slots  3                    2          +0.25s\n"
            "order         layer_major (given)  -               -\n"
            "\n"
            "Assumptions\n"
            "- the link carries 24 GB/s each way\n");
  std::stringstream written;
  written << std::ifstream(trace).rdbuf();
  EXPECT_EQ(written.str(), daemon_.plan_response.trace());
  EXPECT_EQ(Run({"plan", JobFile("name: x\n"), "-o", "json"}), 0);
  EXPECT_THAT(out_.str(), ::testing::StartsWith("{\"fits\":true,\"device\":\"rtx-3080-10gb\""));
  EXPECT_FALSE(daemon_.plan_request.trace());
}

TEST_F(CliTest, APlanThatDoesNotFitIsAnAnswerWithAnExitCodeOfItsOwn) {
  *daemon_.plan_response.mutable_plan() = Parse<v1::JobPlan>(
      R"(device: "rtx-3080-10gb" device_budget_bytes: 1024 shortfall: "1.0 GiB too much; set x"
         device_memory { purpose: "slots" bytes: 2048 })");
  EXPECT_EQ(Run({"plan", JobFile("name: x\n")}), kExitMemoryInsufficient);
  EXPECT_EQ(out_.str(),
            "Device  rtx-3080-10gb\n"
            "Fits    no\n"
            "Why     1.0 GiB too much; set x\n"
            "\n"
            "MEMORY   DEVICE  HOST\n"
            "slots   2.0 KiB     -\n"
            "total   2.0 KiB   0 B\n"
            "budget  1.0 KiB     -\n");
  EXPECT_EQ(error_.str(), "");
}

TEST_F(CliTest, RefusesProfilesAndSizesThatAreNone) {
  const std::string file = JobFile("name: x\n");
  daemon_.failures["PlanJob"] = {MakeGrpcError(
      grpc::StatusCode::INVALID_ARGUMENT, "PROFILE_UNKNOWN", "device: `rtx` is unknown",
      {{"device", "`rtx` is unknown; use one of cpu, h200"}})};
  EXPECT_EQ(Run({"plan", file, "--device", "rtx"}), kExitUnknownProfile);
  EXPECT_EQ(error_.str(), "error: device: `rtx` is unknown; use one of cpu, h200\n");
  EXPECT_EQ(Run({"plan", file, "--device", "h200", "--host-memory", "lots"}), kExitUsage);
  EXPECT_THAT(error_.str(), HasSubstr("\"lots\" is not a size such as 64GiB"));
  EXPECT_EQ(Run({"plan", file, "--host-memory", "64GiB"}), kExitUsage);
  EXPECT_THAT(error_.str(), HasSubstr("--device"));
}

TEST_F(CliTest, ADryRunTellsThePlan) {
  *daemon_.job.mutable_plan() = Parse<v1::JobPlan>(kPlan);
  EXPECT_EQ(Run({"submit", JobFile("name: x\n"), "--dry-run"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("is valid; nothing was submitted\nDevice       rtx-3080"));
  EXPECT_EQ(Run({"show", "plays"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("Planned   1.2k tokens/s, 13s a step of 16.4k tokens"));
  EXPECT_THAT(out_.str(), HasSubstr("Bound by  the link between host and device\n"));
}

TEST_F(CliTest, FetchesATraceWholeAlsoWhenTheStreamBreaks) {
  daemon_.trace.set_first_step(10);
  daemon_.trace.set_last_step(12);
  daemon_.trace.set_data(std::string(4500, 't'));
  daemon_.break_stream_after = {2};
  const std::string out = absl::StrCat(::testing::TempDir(), "/trace.json");
  EXPECT_EQ(Run({"trace", "plays", "--out", out}), 0) << error_.str();
  EXPECT_EQ(out_.str(),
            absl::StrCat(out, " has steps 10 to 12 (4.4 KiB); open it in ui.perfetto.dev\n"));
  EXPECT_THAT(daemon_.trace_offsets, ::testing::ElementsAre(0, 2000));
  std::stringstream written;
  written << std::ifstream(out).rdbuf();
  EXPECT_TRUE(written.str() == daemon_.trace.data());
  EXPECT_EQ(Run({"trace", "plays", "--step", "3", "--out", out}), kExitNotFound);
}

TEST_F(CliTest, ATraceNeverTakesThePlaceOfAFolderOrADevice) {
  *daemon_.plan_response.mutable_plan() = Parse<v1::JobPlan>(kPlan);
  daemon_.trace.set_first_step(10);
  daemon_.trace.set_last_step(12);
  daemon_.trace.set_data("{}");
  const std::string pipe = absl::StrCat(::testing::TempDir(), "/pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& out : {pipe, ::testing::TempDir()}) {
    EXPECT_EQ(Run({"trace", "plays", "--out", out}), kExitInvalidInput);
    EXPECT_THAT(error_.str(), HasSubstr("name a file"));
    EXPECT_EQ(Run({"plan", JobFile("name: x\n"), "--trace", out}), kExitInvalidInput);
    EXPECT_THAT(error_.str(), HasSubstr("name a file"));
  }
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_FALSE(std::filesystem::exists(pipe + ".partial"));
}

TEST_F(CliTest, WatchTellsWhatAStepWaitedFor) {
  daemon_.job.set_state(v1::Job::SUCCEEDED);
  AddEvent(R"(step { step: 1 step_seconds: 2 tokens_per_second: 51 loss: 5 learning_rate: 0.001
                     stalls { weights_seconds: 0.5 } })");
  EXPECT_EQ(Run({"watch", "plays"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("51 tok/s  waits weights 0.50s\n"));
  EXPECT_EQ(Run({"watch", "plays", "-o", "json"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("\"stalls\":{\"weights_seconds\":0.5"));
}

TEST_F(CliTest, SubmitWithWatchEndsAsTheJobDoes) {
  AddStory(v1::Job::FAILED);
  EXPECT_EQ(Run({"submit", JobFile("name: x\n"), "--watch"}), kExitJobFailed);
  EXPECT_THAT(error_.str(), HasSubstr("submitted jobs/plays"));
}

TEST_F(CliTest, ListsEveryProblemOfAJobFileWithItsName) {
  std::string file = JobFile("nmae: x\ntrain: {steps: a}\n");
  EXPECT_EQ(Run({"submit", file}), kExitInvalidInput);
  EXPECT_EQ(error_.str(),
            absl::StrCat("error: ", file,
                         ": line 1: nmae: unknown key; did you mean name?\n"
                         "error: ",
                         file, ": line 2: train.steps: \"a\" is not a whole number\n"));
  EXPECT_EQ(daemon_.calls["CreateJob"], 0);
}

TEST_F(CliTest, RefusesALocalPathAsDatasetWithTheFix) {
  EXPECT_EQ(Run({"submit", JobFile("data: {train: ./plays}\n")}), kExitInvalidInput);
  EXPECT_EQ(error_.str(),
            "error: data.train: \"./plays\" is not a dataset of the daemon; upload it (`millrace "
            "datasets upload ID ./plays`) and write `train: datasets/ID`\n");
}

TEST_F(CliTest, HasAnExitCodeForEachKindOfError) {
  const std::vector<std::pair<grpc::StatusCode, int>> kinds = {
      {grpc::StatusCode::INVALID_ARGUMENT, 3},    {grpc::StatusCode::NOT_FOUND, 4},
      {grpc::StatusCode::FAILED_PRECONDITION, 5}, {grpc::StatusCode::ALREADY_EXISTS, 6},
      {grpc::StatusCode::RESOURCE_EXHAUSTED, 7},  {grpc::StatusCode::DATA_LOSS, 11},
      {grpc::StatusCode::PERMISSION_DENIED, 12},  {grpc::StatusCode::INTERNAL, 1}};
  for (auto [code, exit_code] : kinds) {
    daemon_.failures["PauseJob"] = {MakeGrpcError(code, "SOME_REASON", "no, because")};
    EXPECT_EQ(Run({"pause", "plays"}), exit_code);
    EXPECT_EQ(error_.str(), "error: no, because\n");
    EXPECT_EQ(out_.str(), "");
  }
  const std::vector<std::pair<std::string, int>> reasons = {{"MODEL_INVALID", 13},
                                                            {"DATASET_INVALID", 14},
                                                            {"DATASET_NOT_FOUND", 15},
                                                            {"CHECKPOINT_NOT_FOUND", 16},
                                                            {"DEVICE_MEMORY_INSUFFICIENT", 17},
                                                            {"DISK_FULL", 18},
                                                            {"PROFILE_UNKNOWN", 19}};
  for (const auto& [reason, exit_code] : reasons) {
    daemon_.failures["PauseJob"] = {
        MakeGrpcError(grpc::StatusCode::FAILED_PRECONDITION, reason, "no")};
    EXPECT_EQ(Run({"pause", "plays"}), exit_code) << reason;
  }
  daemon_.failures["PauseJob"] = {
      MakeGrpcError(grpc::StatusCode::NOT_FOUND, "JOB_NOT_FOUND", "jobs/x does not exist")};
  EXPECT_EQ(Run({"pause", "x", "-o", "json"}), 4);
  EXPECT_EQ(error_.str(),
            "{\"error\":{\"code\":\"NOT_FOUND\",\"reason\":\"JOB_NOT_FOUND\",\"message\":\"jobs/x "
            "does not exist\"}}\n");
}

TEST_F(CliTest, SaysHowToStartADaemonThatIsNotThere) {
  daemon_.Stop();
  EXPECT_EQ(Run({"jobs"}), kExitUnreachable);
  std::vector<std::string> lines = absl::StrSplit(error_.str(), '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 1);
  EXPECT_THAT(lines[0], HasSubstr(daemon_.address()));
  EXPECT_THAT(lines[0], HasSubstr("millraced --data_dir"));
}

TEST_F(CliTest, ExplainsACommandLineThatIsWrong) {
  EXPECT_EQ(Run({}), kExitUsage);
  EXPECT_EQ(Run({"sumbit", "x"}), kExitUsage);
  EXPECT_EQ(error_.str(), "error: sumbit is not a command; did you mean submit?\n");
  EXPECT_EQ(Run({"show"}), kExitUsage);
  EXPECT_EQ(error_.str(), "error: JOB is required; see millrace --help\n");
  EXPECT_EQ(Run({"watch", "a", "--after", "-1"}), kExitUsage);
  EXPECT_EQ(
      error_.str(),
      "error: --after: Value -1 not in range 0 to 9223372036854775807; see millrace --help\n");
  EXPECT_EQ(Run({"show", "a", "--nope"}), kExitUsage);
  EXPECT_EQ(Run({"jobs", "-o", "xml"}), kExitUsage);
  EXPECT_EQ(Run({"logs", "a", "--tail", "0"}), kExitUsage);
}

TEST_F(CliTest, HelpHasTheTableOfExitCodes) {
  EXPECT_EQ(Run({"--help"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr(ExitCodeTable()));
  EXPECT_EQ(Run({"checkpoints", "download", "--help"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("latest"));
}

TEST_F(CliTest, CancelWaitsForTheEnd) {
  daemon_.job.set_state(v1::Job::CANCELLING);
  daemon_.job.set_attempt(1);
  std::thread daemon_work([&] {
    ASSERT_TRUE(daemon_.WaitForCalls("WatchJob", 1));
    std::lock_guard<std::mutex> lock(daemon_.mutex);
    daemon_.job.set_state(v1::Job::CANCELLED);
    AddEvent("attempt: 1 state_change { from: CANCELLING to: CANCELLED reason: REASON_USER }");
  });
  EXPECT_EQ(Run({"cancel", "plays", "--wait"}), 0);
  daemon_work.join();
  EXPECT_EQ(out_.str(), "jobs/plays CANCELLED\n");
}

TEST_F(CliTest, PrintsLogsAsTheyAre) {
  daemon_.job.set_attempt(1);
  daemon_.job.set_state(v1::Job::SUCCEEDED);
  daemon_.logs[1] = "one\n\x1b[31mtwo\n";
  daemon_.log_ended[1] = true;
  EXPECT_EQ(Run({"logs", "plays"}), 0);
  EXPECT_EQ(out_.str(), daemon_.logs[1]);
  EXPECT_EQ(Run({"logs", "plays", "-f", "--tail", "1"}), 0);
  EXPECT_EQ(out_.str(), "\x1b[31mtwo\n");
  EXPECT_EQ(Run({"logs", "plays", "--attempt", "7"}), kExitNotFound);
  terminal_.interactive = true;
  EXPECT_EQ(Run({"logs", "plays"}), 0);
  EXPECT_EQ(out_.str(), "one\n?[31mtwo\n");
}

TEST_F(CliTest, UploadsAndShowsADataset) {
  std::string file = JobFile("To be, or not to be\n");
  EXPECT_EQ(Run({"datasets", "upload", "plays", file}), 0);
  EXPECT_EQ(out_.str(),
            "datasets/plays READY: 0 B, 1 document\n"
            "use it in a job file: data: {train: datasets/plays}\n");
  EXPECT_EQ(Run({"datasets", "show", "plays"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("UploadsAndShowsADataset.yaml  20 B      100%"));
  EXPECT_EQ(Run({"datasets", "list"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("plays    READY"));
  EXPECT_EQ(Run({"datasets", "show", "other"}), kExitDatasetNotFound);
  EXPECT_EQ(Run({"datasets", "upload", "plays", "/no/such/file"}), kExitNotFound);
}

TEST_F(CliTest, ListsCheckpointsAndNamesTheOneThatIsMissing) {
  daemon_.checkpoints = {
      Parse<v1::Checkpoint>(R"(name: "jobs/plays/checkpoints/20" step: 20 size_bytes: 3145728
                               create_time { seconds: 1796126370 } evaluation_loss: 1.25)"),
      Parse<v1::Checkpoint>(R"(name: "jobs/plays/checkpoints/10" step: 10 size_bytes: 3145728
                               create_time { seconds: 1796126340 })")};
  EXPECT_EQ(Run({"checkpoints", "list", "plays"}), 0);
  EXPECT_EQ(out_.str(),
            "STEP     SIZE  EVALUATION  CREATED\n"
            "  20  3.0 MiB      1.2500  30s ago\n"
            "  10  3.0 MiB           -  1m00s ago\n");
  EXPECT_EQ(Run({"checkpoints", "show", "plays", "99"}), kExitCheckpointNotFound);
  auto* file = daemon_.checkpoint_files.add_files();
  file->set_path("config.json");
  file->set_sha256("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  std::string target = absl::StrCat(::testing::TempDir(), "/downloaded");
  EXPECT_EQ(Run({"checkpoints", "download", "plays", "-d", target}), 0);
  EXPECT_EQ(out_.str(), absl::StrCat(target, " has step 20 (3.0 MiB, every SHA-256 checked)\n"));
  EXPECT_EQ(Run({"checkpoints", "download", "plays", "-d", target}), kExitAlreadyExists);
}

TEST_F(CliTest, PrintsAnythingAsYaml) {
  daemon_.node =
      Parse<v1::Node>(R"(hostname: "1.5" cores: 2 devices { name: "cpu" features: "amx" })");
  EXPECT_EQ(Run({"info", "-o", "yaml"}), 0);
  EXPECT_THAT(out_.str(), ::testing::StartsWith("---\nhostname: \"1.5\"\n"));
  EXPECT_THAT(out_.str(), HasSubstr("\ncores: 2\n"));
  EXPECT_THAT(out_.str(), HasSubstr("    features:\n      - \"amx\"\n"));
  EXPECT_THAT(out_.str(), HasSubstr("library_versions: {}\n"));
}

TEST_F(CliTest, ShowsTheNode) {
  daemon_.node = Parse<v1::Node>(R"(
    hostname: "box" version: "1.2" cores: 2 memory_total_bytes: 2147483648
    memory_available_bytes: 1073741824 running_jobs: 1
    devices { name: "cpu" model: "Some CPU" memory_total_bytes: 1024 job: "jobs/plays"
              features: "avx2" features: "amx_bf16" })");
  (*daemon_.node.mutable_library_versions())["sqlite"] = "3.40";
  (*daemon_.node.mutable_library_versions())["grpc"] = "1.51";
  EXPECT_EQ(Run({"info"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("Memory     1.0 GiB free of 2.0 GiB\n"));
  EXPECT_THAT(out_.str(), HasSubstr("Libraries  grpc 1.51, sqlite 3.40\n"));
  EXPECT_THAT(out_.str(), HasSubstr("cpu     Some CPU  0 B of 1.0 KiB  plays  avx2 amx_bf16\n"));
}

}  // namespace
}  // namespace millrace
