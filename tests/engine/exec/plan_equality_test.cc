// Streaming never changes the numbers: whatever a plan chooses, and in whatever legal order the
// streams run, losses and state are the same to the bit.
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/engine/exec/rig.h"

namespace millrace {
namespace {

INSTANTIATE_TEST_SUITE_P(ModelsPrecisionClipping, EveryModelTest,
                         ::testing::Combine(::testing::Range(0, 6), ::testing::Bool(),
                                            ::testing::Bool()));

// A plan's choices, drawn from `random`, for a model of three blocks.
void Choose(std::mt19937& random, Plan& plan) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  plan.order = pick(0, 2) == 0 ? Order::kBatchMajor : Order::kLayerMajor;
  plan.weight_slots = pick(1, 4);
  plan.resident_units = pick(0, 3);
  plan.reuse_at_turn = pick(0, 1) == 1;
  const int passes =
      3 * static_cast<int>(plan.order == Order::kBatchMajor ? 1 : plan.shape.micro_batches);
  plan.kept_passes = pick(0, passes);
  plan.selective_passes = pick(0, passes - static_cast<int>(plan.kept_passes));
  plan.offloaded_passes = plan.unified ? 0 : pick(0, passes);
  const bool tiles = plan.shape.vocab_tile > 0 && plan.order == Order::kLayerMajor;
  plan.head = tiles && pick(0, 1) == 1 ? HeadPlacement::kTiled : HeadPlacement::kWhole;
}

std::string Describe(const Plan& plan) {
  return absl::StrCat("unified ", plan.unified, " order ", static_cast<int>(plan.order), " slots ",
                      plan.weight_slots, " resident ", plan.resident_units, " reuse ",
                      plan.reuse_at_turn, " kept ", plan.kept_passes, " selective ",
                      plan.selective_passes, " offloaded ", plan.offloaded_passes, " head ",
                      static_cast<int>(plan.head));
}

TEST_P(EveryModelTest, NoPlanChangesTheNumbers) {
  Configuration setup = Base();
  std::mt19937 random(5);
  for (int64_t micro_batches : {1, 3}) {
    for (int64_t token_chunk : {22, 9}) {
      for (int64_t vocab_tile : {0, 30}) {
        setup.shape.micro_batches = micro_batches;
        setup.shape.token_chunk = token_chunk;
        setup.shape.vocab_tile = vocab_tile;
        setup.shape.z_loss = vocab_tile > 0 ? 1e-3 : 0;
        setup.mode = CpuDeviceMode::kUnified;
        setup.change = [](Plan&) {};
        const std::string expected = Outcome(setup);
        for (int trial = 0; trial < 6; ++trial) {
          setup.mode = trial % 2 == 0 ? CpuDeviceMode::kUnified : CpuDeviceMode::kDiscrete;
          std::string description;
          const uint32_t seed = static_cast<uint32_t>(random());
          setup.change = [&](Plan& plan) {
            std::mt19937 choices(seed);
            Choose(choices, plan);
            description = Describe(plan);
          };
          EXPECT_TRUE(Outcome(setup) == expected)
              << description << " micro-batches " << micro_batches << " chunk " << token_chunk
              << " tile " << vocab_tile;
        }
      }
    }
  }
}

// Quantized moments and stochastic rounding belong to elements, not to when and where a unit is
// updated.
TEST(RecipesTest, NoPlanChangesTheNumbersOfAnyRecipeOrOptimizer) {
  for (const auto& [recipe, optimizer] : {std::pair{Recipe::kLean, OptimizerKind::kAdamW},
                                          {Recipe::kTiny, OptimizerKind::kAdamW},
                                          {Recipe::kTiny, OptimizerKind::kSgd},
                                          {Recipe::kLean, OptimizerKind::kLion}}) {
    for (bool clip : {true, false}) {
      Configuration setup;
      setup.spec = LlamaSpec(false);
      setup.recipe = recipe;
      setup.compute = DType::kBF16;
      setup.optimizer = optimizer;
      setup.shape.clip = clip;
      const std::string expected = Outcome(setup);
      for (uint32_t seed = 0; seed < 4; ++seed) {
        setup.mode = seed % 2 == 0 ? CpuDeviceMode::kUnified : CpuDeviceMode::kDiscrete;
        std::string description;
        setup.change = [&](Plan& plan) {
          std::mt19937 choices(seed);
          Choose(choices, plan);
          description = Describe(plan);
        };
        EXPECT_TRUE(Outcome(setup) == expected)
            << NameOf(recipe) << " " << NameOf(optimizer) << " " << description;
      }
    }
  }
}

TEST_P(EveryModelTest, NoLegalOrderOfTheStreamsChangesTheNumbers) {
  Configuration setup = Base();
  setup.shape.token_chunk = 9;
  setup.shape.vocab_tile = 30;
  const std::string expected = Outcome(setup);
  for (CpuDeviceMode mode : {CpuDeviceMode::kUnified, CpuDeviceMode::kDiscrete}) {
    for (uint32_t seed = 0; seed < 4; ++seed) {
      setup.mode = mode;
      setup.deferred = DeferredDevice::Options{.seed = seed};
      std::string description;
      setup.change = [&](Plan& plan) {
        std::mt19937 choices(seed);
        Choose(choices, plan);
        description = Describe(plan);
      };
      EXPECT_TRUE(Outcome(setup) == expected) << description << " seed " << seed;
    }
  }
}

// Shows that the test above can fail.
TEST(StepRunnerTest, WithoutEventsTheNumbersDoChange) {
  Configuration setup;
  setup.spec = LlamaSpec(false);
  const auto loss = [&](bool honor_events) {
    setup.mode = CpuDeviceMode::kDiscrete;
    setup.deferred = DeferredDevice::Options{.seed = 3, .honor_events = honor_events};
    return Rig(setup).Step(1).loss_sum;
  };
  EXPECT_NE(loss(false), loss(true));
}

}  // namespace
}  // namespace millrace
