#include "engine/exec/step_runner.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/aligned_buffer.h"
#include "engine/base/random.h"
#include "engine/base/thread_pool.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/schedule/builder.h"
#include "engine/schedule/planner.h"
#include "gtest/gtest.h"
#include "tests/engine/exec/deferred_device.h"

namespace millrace {
namespace {

ModelSpec LlamaSpec(bool tied) {
  ModelSpec spec;
  spec.model_type = "llama";
  spec.vocab_size = 71;
  spec.hidden_size = 32;
  spec.num_layers = 3;
  spec.num_heads = 4;
  spec.num_kv_heads = 2;
  spec.head_dim = 8;
  spec.intermediate_size = 48;
  spec.max_positions = 64;
  spec.tied_embeddings = tied;
  return spec;
}

ModelSpec Gpt2Spec() {
  ModelSpec spec = LlamaSpec(/*tied=*/true);
  spec.model_type = "gpt2";
  spec.num_kv_heads = 4;
  spec.norm = NormKind::kLayerNorm;
  spec.norm_bias = true;
  spec.position = PositionKind::kLearned;
  spec.attention_bias = spec.attention_output_bias = spec.mlp_bias = true;
  spec.mlp = MlpKind::kGeluTanh;
  return spec;
}

// Micro-batches with documents of odd lengths and some ignored targets.
struct Batches {
  std::vector<std::vector<int32_t>> inputs, targets, positions, boundaries;

  Batches(const ModelSpec& spec, const StepShape& shape, uint64_t step) {
    for (int64_t b = 0; b < shape.micro_batches; ++b) {
      const CounterRandom random(step, static_cast<uint64_t>(b));
      std::vector<int32_t> in, out, position, boundary = {0};
      for (int64_t t = 0; t < shape.tokens_per_micro_batch; ++t) {
        const uint64_t index = static_cast<uint64_t>(t);
        in.push_back(static_cast<int32_t>(random.Below(spec.vocab_size, 3 * index)));
        out.push_back(random.Uniform(3 * index + 1) < 0.2
                          ? -1
                          : static_cast<int32_t>(random.Below(spec.vocab_size, 3 * index + 2)));
        if (t - boundary.back() == shape.longest_document || t == 5) {
          boundary.push_back(static_cast<int32_t>(t));
        }
        position.push_back(static_cast<int32_t>(t) - boundary.back());
      }
      boundary.push_back(static_cast<int32_t>(shape.tokens_per_micro_batch));
      inputs.push_back(in);
      targets.push_back(out);
      positions.push_back(position);
      boundaries.push_back(boundary);
    }
  }

  std::vector<TokenBatch> views() const {
    std::vector<TokenBatch> views;
    for (size_t b = 0; b < inputs.size(); ++b) {
      views.push_back({inputs[b], targets[b], positions[b], boundaries[b]});
    }
    return views;
  }
};

struct Configuration {
  ModelSpec spec;
  StepShape shape{.micro_batches = 3,
                  .tokens_per_micro_batch = 22,
                  .longest_document = 11,
                  .token_chunk = 22,
                  .clip = true};
  Recipe recipe = Recipe::kFp32;
  DType compute = DType::kF32;
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  CpuDeviceMode mode = CpuDeviceMode::kUnified;
  double link_bytes_per_second = 0;
  // What of the planner's plan is to be otherwise; device_bytes are found anew.
  std::function<void(Plan&)> change = [](Plan&) {};
  // Set: a device that runs its streams in a random legal order.
  std::optional<DeferredDevice::Options> deferred;
};

// A model with random weights on a device of its own, ready to step.
class Rig {
 public:
  explicit Rig(const Configuration& setup, const std::atomic<bool>* cancelled = nullptr)
      : setup_(setup), ops_(CreateCpuOps(setup.compute, &pool_)) {
    state_ = *HostState::Create(MakeSlabLayouts(setup.spec), setup.recipe, setup.compute, pool_,
                                setup.optimizer);
    for (int unit = 0; unit < state_->num_units(); ++unit) {
      for (const TensorLayout& tensor : state_->layout(unit).tensors) {
        const CounterRandom random(
            7, 100 * static_cast<uint64_t>(unit) + static_cast<uint64_t>(tensor.role));
        std::vector<float> values(static_cast<size_t>(tensor.count()));
        for (size_t i = 0; i < values.size(); ++i) {
          values[i] =
              (tensor.columns == 1 ? 1.0f : 0.0f) + 0.15f * static_cast<float>(random.Normal(i));
        }
        state_->WriteMaster(unit, tensor.offset, absl::MakeSpan(values));
      }
    }
    ScheduledModel model = MakeScheduledModel(setup.spec, *state_, *ops_, setup.shape);
    const bool unified = setup.mode == CpuDeviceMode::kUnified;
    Plan plan = *MakePlan(model, setup.shape, unified, size_t{1} << 40);
    setup.change(plan);
    plan.device_bytes = BuildStepSchedule(model, plan, true).device_bytes;
    const size_t memory_bytes = plan.device_bytes;
    if (setup.deferred.has_value()) {
      DeferredDevice::Options options = *setup.deferred;
      options.memory_bytes = memory_bytes;
      options.unified = unified;
      device_ = std::make_unique<DeferredDevice>(options);
    } else {
      device_ = *CreateCpuDevice({.budget_bytes = memory_bytes,
                                  .mode = setup.mode,
                                  .link_bytes_per_second = setup.link_bytes_per_second});
    }
    absl::StatusOr<std::unique_ptr<StepRunner>> runner = StepRunner::Create(
        std::move(model), plan, device_.get(), ops_.get(), &host_pool_, state_.get(), cancelled);
    EXPECT_TRUE(runner.ok()) << runner.status();
    runner_ = *std::move(runner);
  }

  absl::StatusOr<StepResult> TryStep(int64_t step, double learning_rate = 1e-2) {
    const Batches batches(setup_.spec, setup_.shape, static_cast<uint64_t>(step));
    return runner_->TrainStep(
        batches.views(),
        {.step = step, .learning_rate = learning_rate, .clip_norm = setup_.shape.clip ? 0.5 : 0.0});
  }
  StepResult Step(int64_t step, double learning_rate = 1e-2) {
    absl::StatusOr<StepResult> result = TryStep(step, learning_rate);
    EXPECT_TRUE(result.ok()) << result.status();
    return *result;
  }

  // Everything that training changes, as bytes.
  std::string Bytes() {
    EXPECT_TRUE(runner_->Flush().ok());
    std::string bytes;
    for (int unit = 0; unit < state_->num_units(); ++unit) {
      for (const auto& slab : state_->Slabs(unit)) {
        bytes.append(reinterpret_cast<const char*>(slab.data()), slab.size());
      }
    }
    return bytes;
  }

  HostState& state() { return *state_; }
  StepRunner& runner() { return *runner_; }
  ThreadPool& pool() { return pool_; }

 private:
  Configuration setup_;
  ThreadPool pool_{2}, host_pool_{2};
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<HostState> state_;
  std::unique_ptr<StepRunner> runner_;
};

// Losses and final state of a few steps.
std::string Outcome(const Configuration& setup) {
  Rig rig(setup);
  std::string outcome;
  for (int64_t step = 1; step <= 3; ++step) {
    const StepResult result = rig.Step(step);
    EXPECT_TRUE(result.finite());
    outcome.append(reinterpret_cast<const char*>(&result.loss_sum), sizeof(double));
    outcome.append(reinterpret_cast<const char*>(&result.gradient_norm), sizeof(double));
  }
  return outcome + rig.Bytes();
}

std::vector<ModelSpec> Specs() { return {LlamaSpec(false), LlamaSpec(true), Gpt2Spec()}; }

class EveryModelTest : public ::testing::TestWithParam<std::tuple<int, bool, bool>> {
 protected:
  Configuration Base() const {
    Configuration setup;
    setup.spec = Specs()[std::get<0>(GetParam())];
    if (std::get<1>(GetParam())) {
      setup.recipe = Recipe::kFull;
      setup.compute = DType::kBF16;
    }
    setup.shape.clip = std::get<2>(GetParam());
    return setup;
  }
};
INSTANTIATE_TEST_SUITE_P(ModelsPrecisionClipping, EveryModelTest,
                         ::testing::Combine(::testing::Values(0, 1, 2), ::testing::Bool(),
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
class GradientTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Models, GradientTest, ::testing::Values(0, 1, 2));

TEST_P(GradientTest, MatchesFiniteDifferencesOfTheMeanLossOverAllTokens) {
  Configuration setup;
  setup.spec = Specs()[GetParam()];
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
      const double epsilon = 0.05 / std::sqrt(size);
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
