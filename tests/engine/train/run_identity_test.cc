#include "engine/train/run_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/model/families.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr StepShape kShape = {.token_chunk = 64};

ModelSpec Model() {
  const auto config = nlohmann::json::parse(R"({"model_type": "llama", "hidden_size": 32,
      "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
      "vocab_size": 257, "max_position_embeddings": 64})");
  return *ParseModelConfig(config, std::nullopt);
}

TrainSpec Spec() {
  TrainSpec spec;
  spec.sequence_length = 64;
  spec.steps = 100;
  spec.tokens_per_step = 256;
  spec.tokens_per_micro_batch = 128;
  return Resolve(spec, 2, true);
}

TEST(RunIdentityTest, TheSameRunMayGoOn) {
  const RunIdentity identity = IdentityOf(Spec(), Model(), "abc", kShape);
  EXPECT_TRUE(CheckSameRun(identity, identity, 10).ok());
}

TEST(RunIdentityTest, AConfigInTheFormOfAnotherVersionIsTheSameRun) {
  const RunIdentity job = IdentityOf(Spec(), Model(), "abc", kShape);
  RunIdentity older = job;
  ASSERT_EQ(older.erase("model.config.pad_token_id"), 1u);
  older["model.config.rope_interleaved"] = "false";
  EXPECT_TRUE(CheckSameRun(older, job, 10).ok()) << CheckSameRun(older, job, 10);
  older["model.config.rms_norm_eps"] = "0.5";
  EXPECT_THAT(std::string(CheckSameRun(older, job, 10).message()),
              HasSubstr("model.config.rms_norm_eps"));
  // Of a version that knows more.
  older = job;
  older["model.config.unheard_of"] = "1";
  EXPECT_FALSE(CheckSameRun(older, job, 10).ok());
}

TEST(RunIdentityTest, NamesEachFieldThatDiffersWithBothValues) {
  TrainSpec other = Spec();
  other.seed = 8;
  other.learning_rate = 1e-3;
  ModelSpec wider = Model();
  wider.intermediate_size = 128;
  const absl::Status status = CheckSameRun(IdentityOf(Spec(), Model(), "abc", kShape),
                                           IdentityOf(other, wider, "abc", kShape), 10);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("train.seed: the checkpoint of step 10 was made with 0, the job says 8"),
            HasSubstr("train.optimizer.learning_rate"), HasSubstr("model.config.intermediate_size"),
            Not(HasSubstr("clip_norm"))));
}

TEST(RunIdentityTest, AnotherRecipeOrOptimizerIsAnotherRun) {
  TrainSpec other;
  other.sequence_length = 64;
  other.steps = 100;
  other.tokens_per_step = 256;
  other.tokens_per_micro_batch = 128;
  other.recipe = Recipe::kTiny;
  other.optimizer = OptimizerKind::kSgd;
  const absl::Status status =
      CheckSameRun(IdentityOf(Spec(), Model(), "abc", kShape),
                   IdentityOf(Resolve(other, 2, true), Model(), "abc", kShape), 10);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("precision.recipe: the checkpoint of step 10 was made with \"full\", the job "
                      "says \"tiny\""),
            HasSubstr("train.optimizer.name"), HasSubstr("train.optimizer.betas"),
            HasSubstr("train.optimizer.epsilon: the checkpoint of step 10 was made with 1e-08, the "
                      "job says nothing"),
            HasSubstr("train.optimizer.momentum: the checkpoint of step 10 was made with nothing, "
                      "the job says 0.9")));
}

TEST(RunIdentityTest, OtherDataIsAnotherRun) {
  const absl::Status status = CheckSameRun(IdentityOf(Spec(), Model(), "abc", kShape),
                                           IdentityOf(Spec(), Model(), "def", kShape), 10);
  EXPECT_THAT(std::string(status.message()), HasSubstr("data.train"));
}

TEST(RunIdentityTest, HowOftenToSaveEvaluateOrSampleIsNotPartOfIt) {
  TrainSpec other = Spec();
  other.checkpoint_every_steps = 3;
  other.keep_last = 9;
  other.evaluate_every_steps = 5;
  other.sample_every_steps = 1;
  other.prompts = {"Once"};
  other.device_budget_bytes = 1 << 30;
  EXPECT_EQ(IdentityOf(Spec(), Model(), "abc", kShape), IdentityOf(other, Model(), "abc", kShape));
}

TEST(RunIdentityTest, AConstantRateMayRunForMoreSteps) {
  TrainSpec spec = Spec();
  spec.schedule = ScheduleKind::kConstant;
  TrainSpec longer = spec;
  longer.steps = 200;
  EXPECT_EQ(IdentityOf(spec, Model(), "abc", kShape), IdentityOf(longer, Model(), "abc", kShape));
  longer.schedule = spec.schedule = ScheduleKind::kCosine;
  EXPECT_NE(IdentityOf(spec, Model(), "abc", kShape), IdentityOf(longer, Model(), "abc", kShape));
}

TEST(RunIdentityTest, DecisionsLeftOutAreTakenFromTheCheckpoint) {
  TrainSpec first = Spec();
  first.threads = 5;
  first.compute = DType::kF32;
  TrainSpec spec;
  AdoptDecisions(IdentityOf(first, Model(), "abc", kShape), &spec);
  EXPECT_EQ(spec.threads, 5);
  EXPECT_EQ(spec.tokens_per_micro_batch, 128);
  EXPECT_EQ(spec.compute, DType::kF32);
  EXPECT_EQ(spec.head_token_chunk, kShape.token_chunk);
  EXPECT_EQ(spec.head_vocab_tile, kShape.vocab_tile);

  TrainSpec said;
  said.threads = 2;
  AdoptDecisions(IdentityOf(first, Model(), "abc", kShape), &said);
  EXPECT_EQ(said.threads, 2);
}

}  // namespace
}  // namespace millrace
