#include "engine/train/train_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>

namespace millrace {
namespace {

using testing::HasSubstr;

TrainSpec ValidSpec() {
  TrainSpec spec;
  spec.model_config_json = "{\"model_type\": \"llama\"}";
  spec.data_path = "plays";
  spec.sequence_length = 512;
  spec.steps = 100;
  spec.tokens_per_step = 16384;
  return spec;
}

TEST(TrainSpecTest, AValidSpecHasNoProblems) { EXPECT_TRUE(Validate(ValidSpec()).empty()); }

TEST(TrainSpecTest, NamesFieldValueAndFixOfTokensThatAreNoWholeSequences) {
  TrainSpec spec = ValidSpec();
  spec.tokens_per_step = 1000;
  const auto problems = Validate(spec);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].field, "train.tokens_per_step");
  EXPECT_EQ(problems[0].message, "1000 is not a multiple of data.sequence_length (512); use 1024");
}

TEST(TrainSpecTest, ProposesAMicroBatchThatDividesTheStep) {
  TrainSpec spec = ValidSpec();
  spec.tokens_per_step = 512 * 12;
  spec.tokens_per_micro_batch = 512 * 5;
  const auto problems = Validate(spec);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].field, "train.tokens_per_micro_batch");
  EXPECT_EQ(problems[0].message, "2560 does not divide train.tokens_per_step (6144); use 2048");
}

TEST(TrainSpecTest, ProposesAMicroBatchOfTheLargestStepAtOnce) {
  TrainSpec spec = ValidSpec();
  spec.sequence_length = 2;
  spec.tokens_per_step = (int64_t{1} << 40) - 2;
  spec.tokens_per_micro_batch = 1 << 30;
  const auto problems = Validate(spec);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].field, "train.tokens_per_micro_batch");
  spec.tokens_per_micro_batch.reset();
  EXPECT_TRUE(Validate(spec).empty());
}

TEST(TrainSpecTest, NamesTheBoundOfAValueThatIsTooLarge) {
  TrainSpec spec = ValidSpec();
  spec.keep_last = 1'000'000'001;
  const auto problems = Validate(spec);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].message, "1000000001 is too large; use at most 1000000000");
}

TEST(TrainSpecTest, ATraceLiesWithinTheRun) {
  TrainSpec spec = ValidSpec();  // of 100 steps
  for (const auto& [first, last] : {std::pair{1, 1}, {1, 100}, {100, 100}, {10, 12}}) {
    spec.trace_steps = {{first, last}};
    EXPECT_TRUE(Validate(spec).empty()) << first << " to " << last;
  }
  const auto complaint = [&spec](int64_t first, int64_t last) {
    spec.trace_steps = {{first, last}};
    const auto problems = Validate(spec);
    EXPECT_EQ(problems.size(), 1u);
    if (problems.empty()) return std::string();
    EXPECT_EQ(problems[0].field, "trace.steps");
    return problems[0].message;
  };
  EXPECT_EQ(complaint(0, 5), "the first, 0, is too small; steps count from 1");
  EXPECT_EQ(complaint(7, 5), "the first, 7, is after the last, 5; give the earlier one first");
  EXPECT_EQ(complaint(90, 101),
            "the last, 101, is past the end of the run; use at most 100, which is train.steps");
  spec.steps = 1000;
  EXPECT_EQ(complaint(10, 110), "10 to 110 are more than 100 steps; end with 109 at the latest");
}

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

struct Bad {
  std::string field;
  std::function<void(TrainSpec&)> spoil;
};

class BadTrainSpecTest : public testing::TestWithParam<Bad> {};

TEST_P(BadTrainSpecTest, IsRefusedByTheFieldsPath) {
  TrainSpec spec = ValidSpec();
  GetParam().spoil(spec);
  const auto problems = Validate(spec);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].field, GetParam().field);
  EXPECT_FALSE(problems[0].message.empty());
}

INSTANTIATE_TEST_SUITE_P(
    Fields, BadTrainSpecTest,
    testing::Values(
        Bad{"model.config", [](TrainSpec& s) { s.model_config_json.clear(); }},
        Bad{"model.from", [](TrainSpec& s) { s.model_from = "models/tiny"; }},
        Bad{"tokenizer", [](TrainSpec& s) { s.tokenizer = "word"; }},
        Bad{"data.train", [](TrainSpec& s) { s.data_path.clear(); }},
        Bad{"data.eval_fraction", [](TrainSpec& s) { s.eval_fraction = 0.6; }},
        Bad{"data.eval_fraction", [](TrainSpec& s) { s.eval_fraction = std::nan(""); }},
        Bad{"data.sequence_length", [](TrainSpec& s) { s.sequence_length = 0; }},
        Bad{"train.steps", [](TrainSpec& s) { s.steps = 0; }},
        Bad{"train.tokens_per_step", [](TrainSpec& s) { s.tokens_per_step = -512; }},
        Bad{"train.tokens_per_micro_batch", [](TrainSpec& s) { s.tokens_per_micro_batch = 100; }},
        Bad{"train.tokens_per_micro_batch", [](TrainSpec& s) { s.tokens_per_micro_batch = 0; }},
        Bad{"data.sequence_length", [](TrainSpec& s) { s.sequence_length = kHuge; }},
        Bad{"train.steps", [](TrainSpec& s) { s.steps = kHuge; }},
        Bad{"train.tokens_per_step", [](TrainSpec& s) { s.tokens_per_step = kHuge; }},
        Bad{"train.tokens_per_step",
            [](TrainSpec& s) {
              s.tokens_per_step = int64_t{1} << 62;
              s.sequence_length = 2;
              s.tokens_per_micro_batch = 2;
            }},
        Bad{"train.tokens_per_micro_batch", [](TrainSpec& s) { s.tokens_per_micro_batch = kHuge; }},
        Bad{"train.threads", [](TrainSpec& s) { s.threads = 513; }},
        Bad{"checkpoint.keep_last", [](TrainSpec& s) { s.keep_last = kHuge; }},
        Bad{"evaluation.max_sequences", [](TrainSpec& s) { s.evaluate_max_sequences = kHuge; }},
        Bad{"sample.max_tokens", [](TrainSpec& s) { s.sample_max_tokens = kHuge; }},
        Bad{"sample.prompts", [](TrainSpec& s) { s.prompts.assign(1001, "Once"); }},
        Bad{"train.clip_norm", [](TrainSpec& s) { s.clip_norm = -1; }},
        Bad{"train.threads", [](TrainSpec& s) { s.threads = 0; }},
        Bad{"train.optimizer.learning_rate", [](TrainSpec& s) { s.learning_rate = 0; }},
        Bad{"train.optimizer.betas",
            [](TrainSpec& s) {
              s.betas = {0.9, 1.0};
            }},
        Bad{"train.optimizer.epsilon", [](TrainSpec& s) { s.epsilon = 0; }},
        Bad{"train.optimizer.epsilon", [](TrainSpec& s) { s.epsilon = 1e-300; }},
        Bad{"train.optimizer.weight_decay", [](TrainSpec& s) { s.weight_decay = -0.1; }},
        Bad{"train.optimizer.momentum", [](TrainSpec& s) { s.momentum = 0.9; }},
        Bad{"train.optimizer.momentum",
            [](TrainSpec& s) {
              s.optimizer = OptimizerKind::kSgd;
              s.momentum = 1.0;
            }},
        Bad{"train.optimizer.betas",
            [](TrainSpec& s) {
              s.optimizer = OptimizerKind::kSgd;
              s.betas = {0.9, 0.95};
            }},
        Bad{"train.optimizer.epsilon",
            [](TrainSpec& s) {
              s.optimizer = OptimizerKind::kLion;
              s.epsilon = 1e-8;
            }},
        Bad{"precision.compute",
            [](TrainSpec& s) {
              s.recipe = Recipe::kTiny;
              s.compute = DType::kF32;
            }},
        Bad{"train.schedule.warmup_steps", [](TrainSpec& s) { s.warmup_steps = 101; }},
        Bad{"train.schedule.final_ratio", [](TrainSpec& s) { s.final_ratio = 1.5; }},
        Bad{"train.schedule.decay_steps", [](TrainSpec& s) { s.decay_steps = 5; }},
        Bad{"train.schedule.decay_steps",
            [](TrainSpec& s) {
              s.schedule = ScheduleKind::kWsd;
              s.decay_steps = 101;
            }},
        Bad{"precision.compute",
            [](TrainSpec& s) {
              s.recipe = Recipe::kFp32;
              s.compute = DType::kBF16;
            }},
        Bad{"train.z_loss", [](TrainSpec& s) { s.z_loss = -1e-4; }},
        Bad{"memory.device_budget", [](TrainSpec& s) { s.device_budget_bytes = 0; }},
        Bad{"memory.host_budget", [](TrainSpec& s) { s.host_budget_bytes = -1; }},
        Bad{"memory.device", [](TrainSpec& s) { s.device = "rtx-4090"; }},
        Bad{"memory.link_gbps", [](TrainSpec& s) { s.link_gbps = 10; }},
        Bad{"memory.link_gbps",
            [](TrainSpec& s) {
              s.device = "cpu-discrete";
              s.link_gbps = 0;
            }},
        Bad{"memory.link_gbps",
            [](TrainSpec& s) {
              s.device = "cpu-discrete";
              s.link_gbps = 1e308;
            }},
        Bad{"memory.plan.weight_slots", [](TrainSpec& s) { s.plan.weight_slots = 1; }},
        Bad{"memory.plan.resident_units", [](TrainSpec& s) { s.plan.resident_units = -1; }},
        Bad{"checkpoint.every_steps", [](TrainSpec& s) { s.checkpoint_every_steps = -1; }},
        Bad{"checkpoint.keep_last", [](TrainSpec& s) { s.keep_last = 0; }},
        Bad{"checkpoint.keep_best", [](TrainSpec& s) { s.keep_best = -1; }},
        Bad{"evaluation.max_sequences", [](TrainSpec& s) { s.evaluate_max_sequences = 0; }},
        Bad{"sample.prompts", [](TrainSpec& s) { s.sample_every_steps = 10; }},
        Bad{"sample.prompts[1]", [](TrainSpec& s) { s.prompts = {"Once", ""}; }},
        Bad{"sample.temperature", [](TrainSpec& s) { s.temperature = -0.5; }}));

TEST(TrainSpecTest, ReportsAllProblemsAtOnce) {
  TrainSpec spec = ValidSpec();
  spec.steps = 0;
  spec.keep_last = 0;
  spec.clip_norm = -1;
  EXPECT_EQ(Validate(spec).size(), 3u);
}

TEST(TrainSpecTest, EachOptimizerHasNumbersOfItsOwn) {
  TrainSpec spec = ValidSpec();
  OptimizerParams params = OptimizerParamsOf(Resolve(spec, 1, true));
  EXPECT_EQ(params.beta1, 0.9);
  EXPECT_EQ(params.beta2, 0.95);
  EXPECT_EQ(params.epsilon, 1e-8);
  spec.optimizer = OptimizerKind::kLion;
  params = OptimizerParamsOf(Resolve(spec, 1, true));
  EXPECT_EQ(params.beta1, 0.9);
  EXPECT_EQ(params.beta2, 0.99);
  spec.optimizer = OptimizerKind::kSgd;
  spec.momentum = 0.5;
  EXPECT_TRUE(Validate(spec).empty());
  const TrainSpec resolved = Resolve(spec, 1, true);
  EXPECT_EQ(OptimizerParamsOf(resolved).momentum, 0.5);
  EXPECT_FALSE(resolved.betas.has_value());
  EXPECT_TRUE(Validate(resolved).empty());
}

TEST(TrainSpecTest, WhatOnlyAnotherOptimizerHasIsRefusedWithTheFix) {
  TrainSpec spec = ValidSpec();
  spec.momentum = 0.9;
  const auto problems = Validate(spec);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].message, "only sgd has it, not adamw; remove it, or set name to sgd");
}

TEST(TrainSpecTest, ResolveFillsInWhatTheMachineDecidesAndKeepsWhatWasSaid) {
  TrainSpec spec = ValidSpec();
  spec.schedule = ScheduleKind::kWsd;
  TrainSpec resolved = Resolve(spec, 6, true);
  EXPECT_EQ(resolved.threads, 6);
  EXPECT_EQ(resolved.compute, DType::kBF16);
  EXPECT_EQ(resolved.decay_steps, 20);
  EXPECT_EQ(resolved.checkpoint_every_steps, 10);
  EXPECT_EQ(Resolve(spec, 6, false).compute, DType::kF32);
  EXPECT_TRUE(Validate(Resolve(spec, 100'000, true)).empty());

  spec.threads = 2;
  spec.compute = DType::kF32;
  spec.decay_steps = 7;
  spec.checkpoint_every_steps = 0;
  resolved = Resolve(spec, 6, true);
  EXPECT_EQ(resolved.threads, 2);
  EXPECT_EQ(resolved.compute, DType::kF32);
  EXPECT_EQ(resolved.decay_steps, 7);
  EXPECT_EQ(resolved.checkpoint_every_steps, 0);
}

TEST(TrainSpecTest, Fp32ComputesInF32WhateverTheProcessorHas) {
  TrainSpec spec = ValidSpec();
  spec.recipe = Recipe::kFp32;
  EXPECT_EQ(Resolve(spec, 2, true).compute, DType::kF32);
  spec.recipe = Recipe::kLean;
  EXPECT_EQ(Resolve(spec, 2, true).compute, DType::kBF16);
  EXPECT_EQ(Resolve(spec, 2, false).compute, DType::kF32);
  spec.recipe = Recipe::kTiny;
  EXPECT_EQ(Resolve(spec, 2, false).compute, DType::kBF16);
}

}  // namespace
}  // namespace millrace
