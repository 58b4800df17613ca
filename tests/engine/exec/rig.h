// A model with random weights on a device of its own, ready to step; for tests of the step runner.
#ifndef MILLRACE_TESTS_ENGINE_EXEC_RIG_H_
#define MILLRACE_TESTS_ENGINE_EXEC_RIG_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/random.h"
#include "engine/base/thread_pool.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/exec/step_runner.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/schedule/builder.h"
#include "engine/schedule/planner.h"
#include "gtest/gtest.h"
#include "tests/engine/exec/deferred_device.h"
#include "tests/engine/model/family_specs.h"

namespace millrace {

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
inline std::string Outcome(const Configuration& setup) {
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

class EveryModelTest : public ::testing::TestWithParam<std::tuple<int, bool, bool>> {
 protected:
  Configuration Base() const {
    Configuration setup;
    setup.spec = FamilySpecs()[std::get<0>(GetParam())];
    if (std::get<1>(GetParam())) {
      setup.recipe = Recipe::kFull;
      setup.compute = DType::kBF16;
    }
    setup.shape.clip = std::get<2>(GetParam());
    return setup;
  }
};

}  // namespace millrace

#endif  // MILLRACE_TESTS_ENGINE_EXEC_RIG_H_
