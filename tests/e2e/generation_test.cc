// What a trained job is for: text that goes on, and its loss on other text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/system.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class GenerationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    system_.StartDaemon();
    ASSERT_FALSE(HasFatalFailure());
    system_.UploadText();
    JobOptions options;
    options.steps = 100;
    options.checkpoint_every = 50;
    system_.Submit("tiny", options);
    ASSERT_EQ(system_.WaitForEnd("tiny").state(), v1::Job::SUCCEEDED);
  }

  RunResult Generate(std::vector<std::string> flags) {
    std::vector<std::string> command = {"generate", "tiny", "--max-tokens", "20"};
    command.insert(command.end(), flags.begin(), flags.end());
    return system_.Run(command);
  }

  System system_;
};

TEST_F(GenerationTest, TextGoesOnFromPromptsAndTheSameSeedGivesItAgain) {
  const RunResult first = Generate({"--prompt", "This ", "--seed", "7"});
  ASSERT_EQ(first.exit_code, 0) << first.errors;
  EXPECT_THAT(first.output, Not(IsEmpty()));
  EXPECT_THAT(first.errors, IsEmpty());
  EXPECT_EQ(Generate({"--prompt", "This ", "--seed", "7"}).output, first.output);
  EXPECT_EQ(system_
                .Run({"generate", "jobs/tiny/checkpoints/100", "--max-tokens", "20", "--prompt",
                      "This ", "--seed", "7"})
                .output,
            first.output);

  // Several, from a file, as JSON: in the order of the prompts, each what it is by itself.
  const std::string file = system_.folder() + "/prompts.jsonl";
  std::ofstream(file) << "The work\n{\"prompt\": \"This \"}\n";
  const RunResult both = Generate({"--prompts", file, "--seed", "7", "-o", "json"});
  ASSERT_EQ(both.exit_code, 0) << both.errors;
  const std::vector<std::string> lines = absl::StrSplit(both.output, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 2u) << both.output;
  const auto second = nlohmann::json::parse(lines[1]);
  EXPECT_EQ(second.at("prompt"), 1);
  EXPECT_EQ(second.at("finish_reason"), "LENGTH");
  EXPECT_EQ(second.at("tokens").size(), 20u);

  const std::string metrics = system_.Metrics();
  EXPECT_THAT(metrics, HasSubstr("millrace_loaded_models"));
  EXPECT_THAT(metrics,
              HasSubstr("millrace_inference_calls_total{kind=\"generate\",result=\"ok\"} 4"));
  EXPECT_THAT(metrics, HasSubstr("millrace_generation_tokens_total 100"));
}

TEST_F(GenerationTest, EvaluationTellsLossAndPerplexityOfADataset) {
  const RunResult run = system_.Run({"evaluate", "tiny", "licences", "--sequence-length", "64",
                                     "--max-sequences", "100", "-o", "json"});
  ASSERT_EQ(run.exit_code, 0) << run.errors;
  const auto result = nlohmann::json::parse(run.output);
  EXPECT_EQ(result.at("complete"), true);
  EXPECT_EQ(result.at("sequences_done"), "100");
  EXPECT_EQ(result.at("model"), "jobs/tiny/checkpoints/100");
  const double loss = result.at("loss");
  EXPECT_GT(loss, 1.0);
  EXPECT_LT(loss, 4.0);
  EXPECT_NEAR(result.at("perplexity").get<double>(), std::exp(loss), 1e-6 * std::exp(loss));
  // A person gets the same as lines.
  EXPECT_THAT(system_.Run({"evaluate", "tiny", "licences", "--max-sequences", "10"}).output,
              HasSubstr("perplexity"));
}

TEST_F(GenerationTest, WhatIsWrongIsSaidWithTheFieldAndTheFix) {
  const RunResult unknown = system_.Run({"generate", "nobody", "--prompt", "x"});
  EXPECT_EQ(unknown.exit_code, 4);
  EXPECT_THAT(unknown.errors, HasSubstr("there is no model and no job `nobody`"));
  const RunResult step = system_.Run({"generate", "jobs/tiny/checkpoints/7", "--prompt", "x"});
  EXPECT_EQ(step.exit_code, 16) << step.errors;
  const RunResult field = Generate({"--prompt", "x", "--top-p", "1.5"});
  EXPECT_EQ(field.exit_code, 3);
  EXPECT_THAT(field.errors, HasSubstr("sampling.top_p: 1.5 is out of range"));
  const RunResult longer = system_.Run({"generate", "tiny", "--prompt", "x", "-n", "100000"});
  EXPECT_EQ(longer.exit_code, 3) << longer.errors;
  EXPECT_THAT(longer.errors, HasSubstr("max_tokens"));
  EXPECT_EQ(Generate({}).exit_code, 2);
  EXPECT_EQ(system_.Run({"evaluate", "tiny", "nothing"}).exit_code, 15);
}

TEST_F(GenerationTest, ALoadedModelEndsWithTheDaemon) {
  ASSERT_EQ(Generate({"--prompt", "x"}).exit_code, 0);
  ASSERT_EQ(system_.Workers().size(), 1u);
  system_.KillDaemon();
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (!system_.Workers().empty() && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_THAT(system_.Workers(), IsEmpty());
}

}  // namespace
}  // namespace millrace
