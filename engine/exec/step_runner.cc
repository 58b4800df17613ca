#include "engine/exec/step_runner.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/aligned_buffer.h"
#include "engine/base/status_macros.h"
#include "engine/exec/executor.h"
#include "engine/exec/trace_recorder.h"
#include "engine/optim/gradient_norm.h"
#include "engine/schedule/builder.h"
#include "engine/schedule/planner.h"
#include "engine/schedule/verifier.h"

namespace millrace {
namespace {

class ScheduleRunner final : public StepRunner {
 public:
  ScheduleRunner(ScheduledModel model, Plan plan, Device* device, Ops* ops, ThreadPool* pool,
                 HostState* state, const std::atomic<bool>* cancelled)
      : StepRunner(std::move(plan)),
        model_(std::move(model)),
        state_(*state),
        pool_(*pool),
        executor_(model_, plan_, device, ops, pool, state, cancelled) {}

  absl::Status Prepare(size_t budget, bool train) {
    MILLRACE_RETURN_IF_ERROR(CheckPlan(model_, plan_));
    train_ = train;
    std::vector<const Schedule*> schedules;
    for (bool pending : {false, true}) {
      if (!train) break;
      steps_[pending] = BuildStepSchedule(model_, plan_, pending);
      MILLRACE_RETURN_IF_ERROR(Verify(steps_[pending], budget));
      schedules.push_back(&steps_[pending]);
    }
    forward_ = BuildForwardSchedule(model_, plan_);
    MILLRACE_RETURN_IF_ERROR(Verify(forward_, budget));
    schedules.push_back(&forward_);
    return executor_.Prepare(schedules);
  }

  absl::StatusOr<StepResult> TrainStep(absl::Span<const TokenBatch> micro_batches,
                                       const OptimizerStep& step) override {
    if (!train_) return absl::FailedPreconditionError("a runner for evaluation makes no steps");
    MILLRACE_RETURN_IF_ERROR(CheckBatches(micro_batches));
    StepResult result;
    for (const TokenBatch& batch : micro_batches) {
      for (int32_t target : batch.targets) result.targets += target >= 0;
    }
    if (result.targets == 0) {
      return absl::InvalidArgumentError("a step needs at least one token to predict");
    }
    const bool deferred = plan_.update_time == UpdateTime::kBeforeNextUpload;
    Executor::Pass pass{.batches = micro_batches,
                        .gradient_scale = 1.0f / static_cast<float>(result.targets)};
    pass.update = deferred ? pending_ : PendingUpdate{.step = step, .factor = 1.0, .valid = true};
    pass.recorder = &recorder_;
    traced_ = &steps_[deferred && pending_.valid];
    MILLRACE_RETURN_IF_ERROR(executor_.Run(*traced_, pass));
    result.stalls = AttributeStalls(*traced_, recorder_.intervals());
    pending_.valid = false;
    result.loss_sum = pass.loss_sum;
    result.gradient_norm = std::sqrt(pass.norm_sum());
    if (deferred && result.finite()) {
      pending_ = {
          .step = step, .factor = ClipFactor(result.gradient_norm, step.clip_norm), .valid = true};
    }
    return result;
  }

  absl::Status Flush() override {
    if (!std::exchange(pending_.valid, false)) return absl::OkStatus();
    for (int unit = 0; unit < state_.num_units(); ++unit) {
      UpdateUnit(state_, unit, HostGradient(unit), pending_.step, pending_.factor, pool_);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<double> EvaluateLossSum(const TokenBatch& batch) override {
    MILLRACE_RETURN_IF_ERROR(CheckLengths(batch));
    const int64_t tokens = static_cast<int64_t>(batch.inputs.size());
    if (tokens == 0 || tokens > plan_.shape.tokens_per_micro_batch) {
      return absl::InvalidArgumentError(absl::StrCat(
          "between 1 and ", plan_.shape.tokens_per_micro_batch,
          " tokens, a micro-batch of the plan, are evaluated at a time, not ", tokens));
    }
    MILLRACE_RETURN_IF_ERROR(Flush());
    Executor::Pass pass{.batches = absl::MakeConstSpan(&batch, 1)};
    MILLRACE_RETURN_IF_ERROR(executor_.Run(forward_, pass));
    return pass.loss_sum;
  }

  absl::Status Logits(absl::Span<const int32_t> tokens, absl::Span<float> logits) override {
    if (tokens.empty() || static_cast<int64_t>(tokens.size()) > plan_.shape.longest_document) {
      return absl::InvalidArgumentError(absl::StrCat("between 1 and ", plan_.shape.longest_document,
                                                     " tokens are needed, not ", tokens.size()));
    }
    if (static_cast<int64_t>(logits.size()) != model_.spec.vocab_size) {
      return absl::InvalidArgumentError("logits must have one element a token of the vocabulary");
    }
    MILLRACE_RETURN_IF_ERROR(Flush());
    std::vector<int32_t> positions(tokens.size());
    for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int32_t>(i);
    const int32_t boundaries[] = {0, static_cast<int32_t>(tokens.size())};
    const TokenBatch batch{.inputs = tokens, .positions = positions, .boundaries = boundaries};
    Executor::Pass pass{.batches = absl::MakeConstSpan(&batch, 1), .logits = logits.data()};
    return executor_.Run(forward_, pass);
  }

  GradientSlab HostGradient(int unit) override { return executor_.HostGradient(steps_[0], unit); }

  std::vector<TraceEvent> Trace(int64_t step) const override {
    if (traced_ == nullptr) return {};
    return MakeTraceEvents(*traced_, recorder_.intervals(), step, recorder_.begin_seconds());
  }

  size_t peak_device_bytes() const override { return executor_.peak_device_bytes(); }

 private:
  static absl::Status CheckLengths(const TokenBatch& batch) {
    const size_t tokens = batch.inputs.size();
    if (batch.targets.size() == tokens && batch.positions.size() == tokens) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("a batch of ", tokens, " tokens needs as many targets and positions, not ",
                     batch.targets.size(), " and ", batch.positions.size()));
  }
  absl::Status CheckBatches(absl::Span<const TokenBatch> batches) const {
    if (static_cast<int64_t>(batches.size()) != plan_.shape.micro_batches) {
      return absl::InvalidArgumentError(absl::StrCat("the plan has ", plan_.shape.micro_batches,
                                                     " micro-batches a step, not ",
                                                     batches.size()));
    }
    for (const TokenBatch& batch : batches) {
      MILLRACE_RETURN_IF_ERROR(CheckLengths(batch));
      if (static_cast<int64_t>(batch.inputs.size()) != plan_.shape.tokens_per_micro_batch) {
        return absl::InvalidArgumentError(
            absl::StrCat("the plan has ", plan_.shape.tokens_per_micro_batch,
                         " tokens a micro-batch, not ", batch.inputs.size()));
      }
    }
    return absl::OkStatus();
  }

  const ScheduledModel model_;
  HostState& state_;
  ThreadPool& pool_;
  Executor executor_;
  bool train_ = true;
  Schedule steps_[2], forward_;  // steps_[1] begins with the updates of the step before
  PendingUpdate pending_;
  TraceRecorder recorder_;
  const Schedule* traced_ = nullptr;  // of the last step
};

}  // namespace

bool StepResult::finite() const { return std::isfinite(loss_sum) && std::isfinite(gradient_norm); }

ScheduledModel MakeScheduledModel(const ModelSpec& spec, std::vector<SlabLayout> layouts,
                                  DType compute_dtype, size_t ops_workspace_bytes) {
  ScheduledModel model{.spec = spec,
                       .layouts = std::move(layouts),
                       .compute_dtype = compute_dtype,
                       .ops_workspace_bytes = ops_workspace_bytes};
  for (const SlabLayout& layout : model.layouts) {
    model.gradient_dtypes.push_back(GradientDType(layout, compute_dtype));
  }
  return model;
}

ScheduledModel MakeScheduledModel(const ModelSpec& spec, const HostState& state, const Ops& ops,
                                  const StepShape& shape) {
  return MakeScheduledModel(spec, state.layouts(), ops.compute_dtype(),
                            ops.WorkspaceBytes(MakeOpsLimits(spec, shape)));
}

absl::StatusOr<std::unique_ptr<StepRunner>> StepRunner::Create(ScheduledModel model, Plan plan,
                                                               Device* device, Ops* ops,
                                                               ThreadPool* pool, HostState* state,
                                                               const std::atomic<bool>* cancelled) {
  auto runner = std::make_unique<ScheduleRunner>(std::move(model), std::move(plan), device, ops,
                                                 pool, state, cancelled);
  MILLRACE_RETURN_IF_ERROR(runner->Prepare(device->memory_bytes(), /*train=*/true));
  return runner;
}

absl::StatusOr<std::unique_ptr<StepRunner>> StepRunner::CreateForEvaluation(
    ScheduledModel model, Plan plan, Device* device, Ops* ops, ThreadPool* pool, HostState* state,
    const std::atomic<bool>* cancelled) {
  auto runner = std::make_unique<ScheduleRunner>(std::move(model), std::move(plan), device, ops,
                                                 pool, state, cancelled);
  MILLRACE_RETURN_IF_ERROR(runner->Prepare(device->memory_bytes(), /*train=*/false));
  return runner;
}

}  // namespace millrace
