// The whole engine, from token ids to updated weights, against PyTorch in float32, for every family
// and every setting of tests/golden. The worst deviations are properties in the test's XML.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "engine/base/thread_pool.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/exec/step_runner.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/schedule/planner.h"
#include "engine/schedule/step_shape.h"
#include "engine/state/host_state.h"
#include "tests/engine/train/golden_model.h"

namespace millrace {
namespace {

class ParityTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(golden_.spec().ok()) << golden_.spec().status(); }

  // An engine with the golden weights.
  void Make(Recipe recipe, DType compute) {
    const ModelSpec& spec = *golden_.spec();
    ops_ = CreateCpuOps(compute, &pool_);
    auto state = HostState::Create(MakeSlabLayouts(spec), recipe, compute, pool_);
    ASSERT_TRUE(state.ok()) << state.status();
    state_ = *std::move(state);
    const absl::Status read =
        ReadModelDirectory(spec, state_->layouts(), golden_.folder(),
                           [this](int64_t unit, int64_t offset, absl::Span<const float> values) {
                             state_->WriteMaster(static_cast<int>(unit), offset, values);
                             return absl::OkStatus();
                           });
    ASSERT_TRUE(read.ok()) << read;
    const int64_t tokens = golden_.steps().front().batch.tokens();
    const StepShape shape = ChooseStepShape(spec, tokens, tokens, tokens, true, compute);
    ScheduledModel model = MakeScheduledModel(spec, *state_, *ops_, shape);
    auto plan = MakePlan(model, shape, true, size_t{1} << 30);
    ASSERT_TRUE(plan.ok()) << plan.status();
    device_ = *CreateCpuDevice(plan->device_bytes);
    auto runner = StepRunner::Create(std::move(model), *std::move(plan), device_.get(), ops_.get(),
                                     &pool_, state_.get(), nullptr);
    ASSERT_TRUE(runner.ok()) << runner.status();
    runner_ = *std::move(runner);
  }

  static TokenBatch View(const MicroBatch& batch) {
    return {batch.inputs, batch.targets, batch.positions, batch.boundaries};
  }

  StepResult Step(size_t index) {
    OptimizerStep optimizer = golden_.optimizer();
    optimizer.step = static_cast<int64_t>(index) + 1;
    const TokenBatch view = View(golden_.steps()[index].batch);
    auto result = runner_->TrainStep({&view, 1}, optimizer);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : StepResult();
  }

  // The largest of what is off, relative, over all steps.
  struct Worst {
    double loss = 0, gradient_norm = 0;
  };
  Worst TrainAllSteps() {
    Worst worst;
    for (size_t i = 0; i < golden_.steps().size(); ++i) {
      const StepResult result = Step(i);
      const GoldenStep& expected = golden_.steps()[i];
      worst.loss = std::max(worst.loss, std::abs(result.loss() / expected.loss - 1));
      worst.gradient_norm = std::max(worst.gradient_norm,
                                     std::abs(result.gradient_norm / expected.gradient_norm - 1));
    }
    EXPECT_TRUE(runner_->Flush().ok());
    return worst;
  }

  std::vector<std::pair<std::string, double>> GradientDistances() {
    return golden_.Distances("gradient.", state_->layouts(), [this](int unit, int64_t offset) {
      const GradientSlab gradient = runner_->HostGradient(unit);
      return gradient.dtype == DType::kF32
                 ? static_cast<const float*>(gradient.data)[offset]
                 : static_cast<const BFloat16*>(gradient.data)[offset].ToFloat();
    });
  }

  static void ExpectWithin(double limit,
                           const std::vector<std::pair<std::string, double>>& distances) {
    double worst = 0;
    for (const auto& [name, distance] : distances) {
      EXPECT_LT(distance, limit) << name;
      worst = std::max(worst, distance);
    }
    Record("tensor", worst);
  }

  static void Record(const std::string& what, double worst) {
    RecordProperty("worst_" + what, absl::StrFormat("%.1e", worst));
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
  Record("loss", std::abs(result.loss() / expected.loss - 1));
  ExpectWithin(1e-4, GradientDistances());
}

TEST_P(ParityTest, TwentyStepsOfAdamWWithClipping) {
  Make(Recipe::kFp32, DType::kF32);
  ASSERT_EQ(golden_.steps().size(), 20);
  const Worst worst = TrainAllSteps();
  EXPECT_LT(worst.loss, 1e-5);
  EXPECT_LT(worst.gradient_norm, 1e-4);
  Record("loss", worst.loss);
  ExpectWithin(1e-4,
               golden_.Distances("after.", state_->layouts(), [this](int unit, int64_t offset) {
                 float value;
                 state_->ReadMaster(unit, offset, {&value, 1});
                 return value;
               }));
}

TEST_P(ParityTest, LogitsAfterEveryToken) {
  Make(Recipe::kFp32, DType::kF32);
  const std::vector<float> expected = golden_.Values("logits");
  const MicroBatch& batch = golden_.steps()[0].batch;
  const auto vocab = static_cast<size_t>(golden_.spec()->vocab_size);
  std::vector<float> logits(vocab);
  double worst = 0;
  for (size_t document = 1; document < batch.boundaries.size(); ++document) {
    const int32_t begin = batch.boundaries[document - 1], end = batch.boundaries[document];
    // Where rotary embeddings depend on the longest position, a prefix is another run.
    const int32_t first = golden_.whole() ? end : begin + 1;
    for (int32_t last = first; last <= end; ++last) {
      const auto tokens =
          absl::MakeConstSpan(batch.inputs)
              .subspan(static_cast<size_t>(begin), static_cast<size_t>(last - begin));
      const absl::Status status = runner_->Logits(tokens, absl::MakeSpan(logits));
      ASSERT_TRUE(status.ok()) << status;
      for (size_t v = 0; v < vocab; ++v) {
        const double off = logits[v] - expected[static_cast<size_t>(last - 1) * vocab + v];
        worst = std::max(worst, std::abs(off));
        ASSERT_LT(std::abs(off), 1e-4) << "after token " << last - 1 << ", class " << v;
      }
    }
  }
  Record("logit", worst);
}

TEST_P(ParityTest, EvaluationGivesTheLossAndChangesNothing) {
  Make(Recipe::kFp32, DType::kF32);
  const GoldenStep& expected = golden_.steps()[0];
  for (int i = 0; i < 2; ++i) {
    const auto sum = runner_->EvaluateLossSum(View(expected.batch));
    ASSERT_TRUE(sum.ok()) << sum.status();
    EXPECT_NEAR(*sum / static_cast<double>(expected.batch.target_count), expected.loss,
                1e-5 * expected.loss);
  }
}

TEST_P(ParityTest, FullRecipeInF32IsFp32) {
  Make(Recipe::kFull, DType::kF32);
  EXPECT_LT(TrainAllSteps().loss, 1e-5);
}

TEST_P(ParityTest, Bf16FollowsAtItsPrecision) {
  Make(Recipe::kFull, DType::kBF16);
  const Worst worst = TrainAllSteps();
  EXPECT_LT(worst.loss, 1e-2);
  Record("loss", worst.loss);
}

INSTANTIATE_TEST_SUITE_P(Models, ParityTest, testing::ValuesIn(GoldenNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace millrace
