#include "engine/exec/step_runner.h"

#include <cmath>
#include <thread>
#include <vector>

#include "engine/base/aligned_buffer.h"
#include "gtest/gtest.h"
#include "tests/engine/exec/rig.h"

namespace millrace {
namespace {

INSTANTIATE_TEST_SUITE_P(ModelsPrecisionClipping, EveryModelTest,
                         ::testing::Combine(::testing::Range(0, 6), ::testing::Bool(),
                                            ::testing::Bool()));

TEST_P(EveryModelTest, WorksInExactlyThePlansMemory) {
  for (CpuDeviceMode mode : {CpuDeviceMode::kUnified, CpuDeviceMode::kDiscrete}) {
    Configuration setup = Base();
    setup.mode = mode;
    Rig rig(setup);
    const size_t planned = rig.runner().plan().device_bytes;
    EXPECT_LT(rig.runner().peak_device_bytes(), planned / 2);
    rig.Step(1);
    rig.Step(2);
    // The last buffer's end may be within a page.
    EXPECT_LE(rig.runner().peak_device_bytes(), planned);
    EXPECT_GT(rig.runner().peak_device_bytes() + kSlabAlignment, planned);
  }
}

TEST_P(EveryModelTest, LearnsABatchByHeart) {
  Configuration setup = Base();
  Rig rig(setup);
  const Batches batches(setup.spec, setup.shape, 1);
  double first = 0, last = 0;
  for (int64_t step = 1; step <= 60; ++step) {
    absl::StatusOr<StepResult> result = rig.runner().TrainStep(
        batches.views(), {.step = step, .learning_rate = 1e-2, .clip_norm = 1.0});
    ASSERT_TRUE(result.ok()) << result.status();
    if (step == 1) first = result->loss();
    last = result->loss();
  }
  EXPECT_LT(last, 0.25 * first);
}

TEST_P(EveryModelTest, EvaluationGivesTheLossOfTraining) {
  Configuration setup = Base();
  setup.shape.micro_batches = 1;
  Rig rig(setup);
  const Batches batches(setup.spec, setup.shape, 1);
  const absl::StatusOr<double> evaluated = rig.runner().EvaluateLossSum(batches.views()[0]);
  ASSERT_TRUE(evaluated.ok()) << evaluated.status();
  EXPECT_EQ(*evaluated, rig.Step(1).loss_sum);
}

TEST_P(EveryModelTest, LogitsOfTheLastTokenGiveItsLoss) {
  Configuration setup = Base();
  Rig rig(setup);
  const std::vector<int32_t> tokens = {3, 1, 4, 1, 5, 9, 2};
  const std::vector<int32_t> positions = {0, 1, 2, 3, 4, 5, 6};
  const std::vector<int32_t> targets = {-1, -1, -1, -1, -1, -1, 6};
  const std::vector<int32_t> boundaries = {0, 7};
  std::vector<float> logits(static_cast<size_t>(setup.spec.vocab_size));
  ASSERT_TRUE(rig.runner().Logits(tokens, absl::MakeSpan(logits)).ok());
  double sum = 0;
  for (float logit : logits) sum += std::exp(static_cast<double>(logit));
  const absl::StatusOr<double> loss =
      rig.runner().EvaluateLossSum({tokens, targets, positions, boundaries});
  ASSERT_TRUE(loss.ok());
  EXPECT_NEAR(std::log(sum) - logits[6], *loss, 1e-4);
}

// The engine's gradient, tensor by tensor, against central differences of its own loss in f32.
class GradientTest : public ::testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Models, GradientTest,
                         ::testing::Range<size_t>(0, FamilyAndMixedSpecs().size()));

TEST_P(GradientTest, MatchesFiniteDifferencesOfTheMeanLossOverAllTokens) {
  Configuration setup;
  setup.spec = FamilyAndMixedSpecs()[GetParam()];
  Rig rig(setup);
  const Batches batches(setup.spec, setup.shape, 1);
  const auto loss = [&] {
    double sum = 0;
    int64_t targets = 0;
    for (const TokenBatch& batch : batches.views()) {
      sum += *rig.runner().EvaluateLossSum(batch);
      for (int32_t target : batch.targets) targets += target >= 0;
    }
    return sum / static_cast<double>(targets);
  };
  rig.Step(1, /*learning_rate=*/0);
  ASSERT_TRUE(rig.runner().Flush().ok());
  for (int unit = 0; unit < rig.state().num_units(); ++unit) {
    ASSERT_EQ(rig.runner().HostGradient(unit).dtype, DType::kF32);
    const float* gradient = static_cast<const float*>(rig.runner().HostGradient(unit).data);
    for (const TensorLayout& tensor : rig.state().layout(unit).tensors) {
      // Along a random direction, so that one number checks a whole tensor.
      const CounterRandom random(11, static_cast<uint64_t>(unit));
      std::vector<float> base(static_cast<size_t>(tensor.count())), direction = base, moved = base;
      rig.state().ReadMaster(unit, tensor.offset, absl::MakeSpan(base));
      double expected = 0, size = 0;
      for (size_t i = 0; i < base.size(); ++i) {
        direction[i] = static_cast<float>(random.Normal(i));
        expected +=
            static_cast<double>(direction[i]) * gradient[tensor.offset + static_cast<int64_t>(i)];
        size += static_cast<double>(direction[i]) * direction[i];
      }
      const double epsilon = 0.01 / std::sqrt(size);
      double difference = 0;
      for (double sign : {1.0, -1.0}) {
        for (size_t i = 0; i < base.size(); ++i) {
          moved[i] = base[i] + static_cast<float>(sign * epsilon * direction[i]);
        }
        rig.state().WriteMaster(unit, tensor.offset, moved);
        difference += sign * loss();
      }
      rig.state().WriteMaster(unit, tensor.offset, base);
      EXPECT_NEAR(difference / (2 * epsilon), expected, 2e-3 * std::max(1.0, std::abs(expected)))
          << "unit " << unit << " tensor role " << static_cast<int>(tensor.role);
    }
  }
}

TEST(StepRunnerTest, TheLossIsPerTokenHoweverTokensFallIntoMicroBatches) {
  // The same documents as one micro-batch and as two.
  Configuration one, two;
  one.spec = two.spec = LlamaSpec(false);
  two.shape.micro_batches = 2;
  one.shape.micro_batches = 1;
  one.shape.tokens_per_micro_batch = 44;
  one.shape.token_chunk = 44;
  const Batches halves(two.spec, two.shape, 5);
  std::vector<int32_t> inputs, targets, positions, boundaries = {0};
  for (int b : {0, 1}) {
    inputs.insert(inputs.end(), halves.inputs[b].begin(), halves.inputs[b].end());
    targets.insert(targets.end(), halves.targets[b].begin(), halves.targets[b].end());
    positions.insert(positions.end(), halves.positions[b].begin(), halves.positions[b].end());
    for (size_t i = 1; i < halves.boundaries[b].size(); ++i) {
      boundaries.push_back(halves.boundaries[b][i] + 22 * b);
    }
  }
  Rig whole(one), split(two);
  const OptimizerStep step{.step = 1, .learning_rate = 1e-2, .clip_norm = 0.5};
  const TokenBatch all{inputs, targets, positions, boundaries};
  const StepResult a = *whole.runner().TrainStep(absl::MakeConstSpan(&all, 1), step);
  const StepResult b = *split.runner().TrainStep(halves.views(), step);
  EXPECT_EQ(a.targets, b.targets);
  EXPECT_NEAR(a.loss(), b.loss(), 1e-6);
  EXPECT_NEAR(a.gradient_norm, b.gradient_norm, 1e-5);
}

TEST(StepRunnerTest, AStepThatIsNotFiniteLeavesWeightsAndMomentsAlone) {
  for (bool clip : {true, false}) {
    Configuration setup;
    setup.spec = LlamaSpec(false);
    setup.shape.clip = clip;
    Rig rig(setup);
    rig.Step(1);
    ASSERT_TRUE(rig.runner().Flush().ok());
    const std::vector<float> poison = {INFINITY};
    rig.state().WriteMaster(2, 3, poison);
    const std::string before = rig.Bytes();
    EXPECT_FALSE(rig.Step(2).finite());
    EXPECT_TRUE(rig.Bytes() == before);
  }
}

TEST(StepRunnerTest, CancelsWithinAStep) {
  Configuration setup;
  setup.spec = LlamaSpec(false);
  std::atomic<bool> cancelled{false};
  Rig rig(setup, &cancelled);
  rig.Step(1);
  cancelled = true;
  EXPECT_EQ(rig.TryStep(2).status().code(), absl::StatusCode::kCancelled);
}

// All of its step is in the streams' queues at once; it must end all the same, long before the link
// has carried what is queued.
TEST(StepRunnerTest, CancelsAStepThatIsOnItsWay) {
  Configuration setup;
  setup.spec = LlamaSpec(false);
  setup.mode = CpuDeviceMode::kDiscrete;
  setup.link_bytes_per_second = 1e5;  // tenths of a second a block, minutes a step
  setup.spec.num_layers = 200;
  std::atomic<bool> cancelled{false};
  Rig rig(setup, &cancelled);
  std::thread canceller([&] { cancelled = true; });
  EXPECT_EQ(rig.TryStep(1).status().code(), absl::StatusCode::kCancelled);
  canceller.join();
}

TEST(StepRunnerTest, RefusesAPlanThatDoesNotFitTheDevice) {
  Configuration setup;
  setup.spec = LlamaSpec(false);
  ThreadPool pool(1);
  auto ops = CreateCpuOps(DType::kF32, &pool);
  auto state = *HostState::Create(MakeSlabLayouts(setup.spec), Recipe::kFp32, DType::kF32, pool);
  const ScheduledModel model = MakeScheduledModel(setup.spec, *state, *ops, setup.shape);
  const Plan plan = *MakePlan(model, setup.shape, true, size_t{1} << 40);
  auto device = *CreateCpuDevice(plan.device_bytes - 4096);
  EXPECT_EQ(StepRunner::Create(model, plan, device.get(), ops.get(), &pool, state.get(), nullptr)
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(StepRunnerTest, RefusesPlansThatThereIsNoScheduleOf) {
  Configuration setup;
  setup.spec = LlamaSpec(false);
  ThreadPool pool(1);
  auto ops = CreateCpuOps(DType::kF32, &pool);
  auto state = *HostState::Create(MakeSlabLayouts(setup.spec), Recipe::kFp32, DType::kF32, pool);
  const ScheduledModel model = MakeScheduledModel(setup.spec, *state, *ops, setup.shape);
  const Plan plan = *MakePlan(model, setup.shape, false, size_t{1} << 40);
  auto device = *CreateCpuDevice(plan.device_bytes, CpuDeviceMode::kDiscrete);
  for (int fault = 0; fault < 5; ++fault) {
    Plan wrong = plan;
    if (fault == 0) wrong.resident_units = 4;
    if (fault == 1) wrong.weight_slots = 0;
    if (fault == 2) wrong.kept_passes = 10;
    if (fault == 3) wrong.offloaded_passes = -1;
    if (fault == 4) wrong.head = HeadPlacement::kTiled;
    EXPECT_EQ(StepRunner::Create(model, wrong, device.get(), ops.get(), &pool, state.get(), nullptr)
                  .status()
                  .code(),
              absl::StatusCode::kInvalidArgument)
        << fault;
  }
}

TEST(StepRunnerTest, RefusesBatchesOfAnotherShape) {
  Configuration setup;
  setup.spec = LlamaSpec(false);
  Rig rig(setup);
  StepShape other = setup.shape;
  other.micro_batches = 2;
  EXPECT_FALSE(rig.runner().TrainStep(Batches(setup.spec, other, 1).views(), {}).ok());
  other = setup.shape;
  other.tokens_per_micro_batch = 21;
  EXPECT_FALSE(rig.runner().TrainStep(Batches(setup.spec, other, 1).views(), {}).ok());
  other.tokens_per_micro_batch = 23;  // evaluation takes fewer, never more
  EXPECT_EQ(rig.runner().EvaluateLossSum(Batches(setup.spec, other, 1).views()[0]).status().code(),
            absl::StatusCode::kInvalidArgument);
  const Batches whole(setup.spec, setup.shape, 1);
  TokenBatch no_targets = whole.views()[0];
  no_targets.targets = {};
  EXPECT_EQ(rig.runner().EvaluateLossSum(no_targets).status().code(),
            absl::StatusCode::kInvalidArgument);
  std::vector<float> logits(71);
  EXPECT_FALSE(rig.runner().Logits({}, absl::MakeSpan(logits)).ok());
}

}  // namespace
}  // namespace millrace
