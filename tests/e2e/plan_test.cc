// What a person is told before a job runs, and what came of it: plans for the box and for cards
// that are not there, a device with memory of its own, and traces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/json_util.h"
#include "tests/e2e/system.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

// Qwen2.5-7B's shape.
constexpr char kLargeJob[] = R"(
name: large
model:
  config: {model_type: llama, attention_bias: true, hidden_size: 3584, intermediate_size: 18944, num_hidden_layers: 28,
           num_attention_heads: 28, num_key_value_heads: 4, max_position_embeddings: 32768,
           vocab_size: 152064}
data: {train: ./not-uploaded-yet, sequence_length: 1024}
train: {steps: 100, tokens_per_step: 16384}
)";

class PlanTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    system_ = new System();
    system_->StartDaemon();
    system_->UploadText();
  }
  static void TearDownTestSuite() {
    delete system_;
    system_ = nullptr;
  }

  RunResult Plan(const std::string& job_file, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"plan", system_->WriteJobFile(job_file)});
    return system_->Run(std::move(more));
  }

  v1::JobPlan PlanAsJson(const std::string& job_file, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"-o", "json"});
    const RunResult result = Plan(job_file, std::move(more));
    v1::JobPlan plan;
    EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(result.output, &plan).ok())
        << result.output << result.errors;
    return plan;
  }

  static System* system_;
};

System* PlanTest::system_ = nullptr;

TEST_F(PlanTest, TellsHowAJobWouldRunOnTheBox) {
  const RunResult text = Plan(JobFileText());
  ASSERT_EQ(text.exit_code, 0) << text.errors;
  EXPECT_THAT(text.output, HasSubstr("Fits         yes\n"));
  EXPECT_THAT(text.output, HasSubstr(" tokens/s, "));
  EXPECT_THAT(text.output, HasSubstr("MEMORY"));
  EXPECT_THAT(text.output, HasSubstr("CHOICE"));
  const v1::JobPlan plan = PlanAsJson(JobFileText());
  EXPECT_TRUE(plan.fits());
  EXPECT_EQ(plan.device(), "cpu");
  EXPECT_EQ(plan.tokens_per_step(), 256);
  EXPECT_GT(plan.step_seconds(), 0);
  EXPECT_GE(plan.largest_sequence_length(), 64);
  // The check before a submission tells the same.
  const RunResult dry_run =
      system_->Run({"submit", system_->WriteJobFile(JobFileText()), "--dry-run"});
  EXPECT_THAT(dry_run.output, HasSubstr("Fits         yes\n"));
}

TEST_F(PlanTest, TellsHowAJobWouldRunOnACardThatIsNotThere) {
  const std::string trace = system_->folder() + "/predicted.json";
  const RunResult text =
      Plan(absl::StrCat(kLargeJob, "precision: {recipe: tiny}\n"),
           {"--device", "rtx-3080-10gb", "--host-memory", "64GiB", "--trace", trace});
  ASSERT_EQ(text.exit_code, 0) << text.errors;
  EXPECT_THAT(text.output, HasSubstr("Device       rtx-3080-10gb\n"));
  EXPECT_THAT(text.output, HasSubstr("Bound by     "));
  EXPECT_TRUE(nlohmann::json::parse(ReadWholeFile(trace)).contains("traceEvents"));
}

TEST_F(PlanTest, TellsWhatIsMissingWhenAJobDoesNotFit) {
  const std::vector<std::string> where = {"--device", "rtx-3080-10gb", "--host-memory", "32GiB"};
  const RunResult text = Plan(kLargeJob, where);
  EXPECT_EQ(text.exit_code, 17) << text.errors;
  EXPECT_THAT(text.output, HasSubstr("Fits    no\n"));
  EXPECT_THAT(text.output, HasSubstr("Why     "));
  EXPECT_EQ(text.errors, "");
  EXPECT_FALSE(PlanAsJson(kLargeJob, where).fits());
}

TEST_F(PlanTest, ADeviceWithMemoryOfItsOwnMakesTheSameWeights) {
  JobOptions options;
  options.layers = 5;
  system_->Submit("unified", options);
  // Two of five blocks, and nothing kept there that can be made again.
  options.extra =
      "memory: {device: cpu-discrete, device_budget: 8MiB, link_gbps: 4,\n"
      "         plan: {weight_slots: 2, resident_units: 0, activations: recompute,\n"
      "                layer_inputs: host}}\n";
  system_->Submit("discrete", options);
  ASSERT_EQ(system_->WaitForEnd("unified").state(), v1::Job::SUCCEEDED);
  const v1::Job discrete = system_->WaitForEnd("discrete");
  ASSERT_EQ(discrete.state(), v1::Job::SUCCEEDED) << discrete.message();
  EXPECT_FALSE(system_->StateHashes("unified").empty());
  EXPECT_EQ(system_->StateHashes("unified"), system_->StateHashes("discrete"));
  EXPECT_EQ(discrete.plan().device(), "cpu-discrete");
  EXPECT_THAT(system_->Run({"show", "discrete"}).output, HasSubstr("Planned"));
  EXPECT_LE(discrete.progress().memory().peak_device_bytes(), 8 << 20);
}

TEST_F(PlanTest, ATraceOfAJobCanBeFetched) {
  JobOptions options;
  options.extra = "trace: {steps: [10, 12]}\n";
  system_->Submit("traced", options);
  ASSERT_EQ(system_->WaitForEnd("traced").state(), v1::Job::SUCCEEDED);
  bool told = false;
  for (const v1::JobEvent& event : system_->AllEvents("traced")) {
    if (!event.has_trace()) continue;
    told = true;
    EXPECT_EQ(event.trace().first_step(), 10);
    EXPECT_EQ(event.trace().last_step(), 12);
    EXPECT_GT(event.trace().size_bytes(), 0);
  }
  EXPECT_TRUE(told);
  const std::string out = system_->folder() + "/trace.json";
  const RunResult fetched = system_->Run({"trace", "traced", "--out", out});
  ASSERT_EQ(fetched.exit_code, 0) << fetched.errors;
  EXPECT_THAT(fetched.output, HasSubstr("steps 10 to 12"));
  EXPECT_TRUE(nlohmann::json::parse(ReadWholeFile(out)).contains("traceEvents"));
  EXPECT_EQ(system_->Run({"trace", "traced", "--step", "11"}).exit_code, 4);
}

}  // namespace
}  // namespace millrace
