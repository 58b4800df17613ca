// The whole engine, from token ids to updated weights, against PyTorch in float32.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/exec/step_runner.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/schedule/planner.h"
#include "engine/state/host_state.h"
#include "tests/engine/train/golden_model.h"

namespace millrace {
namespace {

class ParityTest : public testing::TestWithParam<const char*> {
 protected:
  // An engine with the golden weights.
  void Make(Recipe recipe, DType compute) {
    ops_ = CreateCpuOps(compute, &pool_);
    auto state = HostState::Create(MakeSlabLayouts(golden_.spec()), recipe, compute, pool_);
    ASSERT_TRUE(state.ok()) << state.status();
    state_ = *std::move(state);
    const absl::Status read =
        ReadModelDirectory(golden_.spec(), state_->layouts(), golden_.folder(),
                           [this](int64_t unit, int64_t offset, absl::Span<const float> values) {
                             state_->WriteMaster(static_cast<int>(unit), offset, values);
                             return absl::OkStatus();
                           });
    ASSERT_TRUE(read.ok()) << read;
    const int64_t tokens = golden_.steps().front().batch.tokens();
    const StepShape shape = ChooseStepShape(golden_.spec(), tokens, tokens, tokens, true, compute);
    ScheduledModel model = MakeScheduledModel(golden_.spec(), *state_, *ops_, shape);
    auto plan = MakePlan(model, shape, true, size_t{1} << 30);
    ASSERT_TRUE(plan.ok()) << plan.status();
    device_ = *CreateCpuDevice(plan->device_bytes);
    auto runner = StepRunner::Create(std::move(model), *std::move(plan), device_.get(), ops_.get(),
                                     &pool_, state_.get(), nullptr);
    ASSERT_TRUE(runner.ok()) << runner.status();
    runner_ = *std::move(runner);
  }

  StepResult Step(size_t index) {
    const MicroBatch& batch = golden_.steps()[index].batch;
    OptimizerStep optimizer = golden_.optimizer();
    optimizer.step = static_cast<int64_t>(index) + 1;
    const TokenBatch view = {batch.inputs, batch.targets, batch.positions, batch.boundaries};
    auto result = runner_->TrainStep({&view, 1}, optimizer);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : StepResult();
  }

  float GradientAt(int unit, int64_t offset) const {
    const GradientSlab gradient = runner_->HostGradient(unit);
    return gradient.dtype == DType::kF32
               ? static_cast<const float*>(gradient.data)[offset]
               : static_cast<const BFloat16*>(gradient.data)[offset].ToFloat();
  }

  float WeightAt(int unit, int64_t offset) const {
    float value;
    state_->ReadMaster(unit, offset, {&value, 1});
    return value;
  }

  const GoldenModel golden_{GetParam()};
  ThreadPool pool_{2};
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<HostState> state_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<StepRunner> runner_;
};

TEST_P(ParityTest, LossNormAndGradientsOfTheFirstStep) {
  Make(Recipe::kFp32, DType::kF32);
  const StepResult result = Step(0);
  const GoldenStep& expected = golden_.steps()[0];
  EXPECT_EQ(result.targets, expected.batch.target_count);
  EXPECT_NEAR(result.loss(), expected.loss, 1e-5 * expected.loss);
  EXPECT_NEAR(result.gradient_norm, expected.gradient_norm, 1e-5 * expected.gradient_norm);
  for (const auto& [name, difference] : golden_.Differences(
           "gradient.", state_->layouts(), [this](int u, int64_t i) { return GradientAt(u, i); })) {
    EXPECT_LT(difference, 1e-4) << name;
  }
}

TEST_P(ParityTest, FiveStepsOfAdamWWithClipping) {
  Make(Recipe::kFp32, DType::kF32);
  for (size_t i = 0; i < golden_.steps().size(); ++i) {
    const StepResult result = Step(i);
    const GoldenStep& expected = golden_.steps()[i];
    EXPECT_NEAR(result.loss(), expected.loss, 1e-5 * expected.loss) << "step " << i + 1;
    EXPECT_NEAR(result.gradient_norm, expected.gradient_norm, 1e-4 * expected.gradient_norm);
  }
  ASSERT_TRUE(runner_->Flush().ok());
  for (const auto& [name, difference] : golden_.Differences(
           "after.", state_->layouts(), [this](int u, int64_t i) { return WeightAt(u, i); })) {
    // AdamW makes steps of the rounding in the gradient of GPT-2's key biases, which is zero.
    EXPECT_LT(difference, name.ends_with("c_attn.bias") ? 1e-4 : 1e-5) << name;
  }
}

TEST_P(ParityTest, LogitsOfEveryPrefixOfADocument) {
  Make(Recipe::kFp32, DType::kF32);
  const std::vector<float> expected = golden_.Values("logits");
  const MicroBatch& batch = golden_.steps()[0].batch;
  const size_t vocab = static_cast<size_t>(golden_.spec().vocab_size);
  std::vector<float> logits(vocab);
  for (int32_t length = 1; length <= batch.boundaries[1]; ++length) {
    ASSERT_TRUE(runner_
                    ->Logits(absl::MakeConstSpan(batch.inputs).first(static_cast<size_t>(length)),
                             absl::MakeSpan(logits))
                    .ok());
    for (size_t v = 0; v < vocab; ++v) {
      ASSERT_NEAR(logits[v], expected[static_cast<size_t>(length - 1) * vocab + v], 1e-4)
          << "after " << length << " tokens";
    }
  }
}

TEST_P(ParityTest, EvaluationGivesTheLossAndChangesNothing) {
  Make(Recipe::kFp32, DType::kF32);
  const GoldenStep& expected = golden_.steps()[0];
  const MicroBatch& batch = expected.batch;
  const TokenBatch view = {batch.inputs, batch.targets, batch.positions, batch.boundaries};
  for (int i = 0; i < 2; ++i) {
    const auto sum = runner_->EvaluateLossSum(view);
    ASSERT_TRUE(sum.ok()) << sum.status();
    EXPECT_NEAR(*sum / static_cast<double>(batch.target_count), expected.loss,
                1e-5 * expected.loss);
  }
}

TEST_P(ParityTest, FullRecipeInF32IsFp32) {
  Make(Recipe::kFull, DType::kF32);
  for (size_t i = 0; i < golden_.steps().size(); ++i) {
    EXPECT_NEAR(Step(i).loss(), golden_.steps()[i].loss, 1e-5 * golden_.steps()[i].loss);
  }
}

TEST_P(ParityTest, Bf16FollowsAtItsPrecision) {
  Make(Recipe::kFull, DType::kBF16);
  for (size_t i = 0; i < golden_.steps().size(); ++i) {
    EXPECT_NEAR(Step(i).loss(), golden_.steps()[i].loss, 1e-2 * golden_.steps()[i].loss);
    if (i > 0) continue;
    for (const auto& [name, difference] :
         golden_.Differences("gradient.", state_->layouts(),
                             [this](int u, int64_t i) { return GradientAt(u, i); })) {
      EXPECT_LT(difference, 5e-2) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ParityTest,
                         testing::Values("llama_gqa", "llama_tied", "llama_bias", "gpt2"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace millrace
