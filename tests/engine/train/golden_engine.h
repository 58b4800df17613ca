// An engine on the CPU, with the weights of a model directory.
#ifndef MILLRACE_TESTS_ENGINE_TRAIN_GOLDEN_ENGINE_H_
#define MILLRACE_TESTS_ENGINE_TRAIN_GOLDEN_ENGINE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "engine/base/thread_pool.h"
#include "engine/data/batch.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/exec/step_runner.h"
#include "engine/model/model_directory.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/optim/gradient_slab.h"
#include "engine/schedule/planner.h"
#include "engine/schedule/step_shape.h"
#include "engine/state/host_state.h"

namespace millrace {

class GoldenEngine {
 public:
  // For steps of one micro-batch of `tokens` tokens, clipped.
  void Make(const std::string& folder, Recipe recipe, DType compute, int64_t tokens) {
    const absl::StatusOr<ModelSpec> spec = ReadModelDirectoryConfig(folder);
    ASSERT_TRUE(spec.ok()) << spec.status();
    ops_ = CreateCpuOps(compute, &pool_);
    auto state = HostState::Create(MakeSlabLayouts(*spec), recipe, compute, pool_);
    ASSERT_TRUE(state.ok()) << state.status();
    state_ = *std::move(state);
    const absl::Status read =
        ReadModelDirectory(*spec, state_->layouts(), folder,
                           [this](int64_t unit, int64_t offset, absl::Span<const float> values) {
                             state_->WriteMaster(static_cast<int>(unit), offset, values);
                             return absl::OkStatus();
                           });
    ASSERT_TRUE(read.ok()) << read;
    const StepShape shape = ChooseStepShape(*spec, tokens, tokens, tokens, true, compute);
    ScheduledModel model = MakeScheduledModel(*spec, *state_, *ops_, shape);
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

  // `index`: 0 for the first step.
  StepResult Step(size_t index, const MicroBatch& batch, OptimizerStep optimizer) {
    optimizer.step = static_cast<int64_t>(index) + 1;
    const TokenBatch view = View(batch);
    auto result = runner_->TrainStep({&view, 1}, optimizer);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : StepResult();
  }

  StepRunner& runner() { return *runner_; }
  const HostState& state() const { return *state_; }

  float GradientAt(int unit, int64_t offset) {
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

 private:
  ThreadPool pool_{2};
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<HostState> state_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<StepRunner> runner_;
};

}  // namespace millrace

#endif  // MILLRACE_TESTS_ENGINE_TRAIN_GOLDEN_ENGINE_H_
