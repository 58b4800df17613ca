// Runs steps of a model on a device: the executor of the engine's schedules.
//
//   MILLRACE_ASSIGN_OR_RETURN(Plan plan, MakePlan(model, shape, device.unified(), budget));
//   MILLRACE_ASSIGN_OR_RETURN(auto runner, StepRunner::Create(model, plan, &device, &ops, &pool,
//                                                             &state, &cancelled));
//   for (...) {
//     MILLRACE_ASSIGN_OR_RETURN(StepResult result, runner->TrainStep(batches, optimizer_step));
//   }
//   MILLRACE_RETURN_IF_ERROR(runner->Flush());   // before the weights are read
//
// With clipping, the updates of a step are made while the next one begins, each unit's just before
// it is uploaded; Flush makes what is left. A step whose loss or gradient norm is not finite leaves
// the weights as they were (without clipping: as they were when it was noticed).
//
// Rotary embeddings that go by a sequence's length (RotaryScaling::kDynamic, kLongRope) go by
// shape.longest_document here, however long the documents of a batch are.
//
// Threads: one at a time.
#ifndef MILLRACE_ENGINE_EXEC_STEP_RUNNER_H_
#define MILLRACE_ENGINE_EXEC_STEP_RUNNER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/thread_pool.h"
#include "engine/device/device.h"
#include "engine/ops/ops.h"
#include "engine/optim/gradient_slab.h"
#include "engine/optim/optimizer.h"
#include "engine/schedule/plan.h"
#include "engine/schedule/stalls.h"
#include "engine/schedule/trace.h"
#include "engine/state/host_state.h"

namespace millrace {

// One micro-batch, as the executor sees it. The memory outlives the call it is passed to.
struct TokenBatch {
  absl::Span<const int32_t> inputs;      // token ids
  absl::Span<const int32_t> targets;     // negative: ignored
  absl::Span<const int32_t> positions;   // within the document
  absl::Span<const int32_t> boundaries;  // cumulative document lengths: 0, …, tokens
};

struct StepResult {
  double loss_sum = 0;       // Σ −ln p over the step's unmasked tokens
  int64_t targets = 0;       // unmasked tokens
  double gradient_norm = 0;  // of the mean loss, before clipping
  StepStalls stalls;         // measured

  double loss() const { return targets == 0 ? 0 : loss_sum / static_cast<double>(targets); }
  bool finite() const;
};

// The model as schedules see it, with gradients as the host keeps them.
ScheduledModel MakeScheduledModel(const ModelSpec& spec, std::vector<SlabLayout> layouts,
                                  DType compute_dtype, size_t ops_workspace_bytes);
// The same of a state that there is, with the needs of `ops` for `shape`.
ScheduledModel MakeScheduledModel(const ModelSpec& spec, const HostState& state, const Ops& ops,
                                  const StepShape& shape);

class StepRunner {
 public:
  // Checks `plan` (CheckPlan) and verifies every schedule of it against the device's memory. What
  // the pointers point to outlives the runner. `pool` is for the host's own work (optimizer,
  // embedding rows, norms): on a device whose streams have threads another than the ops'.
  // `cancelled` may be nullptr.
  static absl::StatusOr<std::unique_ptr<StepRunner>> Create(ScheduledModel model, Plan plan,
                                                            Device* device, Ops* ops,
                                                            ThreadPool* pool, HostState* state,
                                                            const std::atomic<bool>* cancelled);
  // The same for a state that is used and not trained: losses and logits alone, in the memory of
  // BuildForwardSchedule. TrainStep is FAILED_PRECONDITION.
  static absl::StatusOr<std::unique_ptr<StepRunner>> CreateForEvaluation(
      ScheduledModel model, Plan plan, Device* device, Ops* ops, ThreadPool* pool, HostState* state,
      const std::atomic<bool>* cancelled);
  virtual ~StepRunner() = default;

  // One optimizer step over plan.shape.micro_batches micro-batches of exactly
  // plan.shape.tokens_per_micro_batch tokens. CANCELLED, within one micro-batch of one unit, when
  // the flag is set: the state is then good for nothing.
  virtual absl::StatusOr<StepResult> TrainStep(absl::Span<const TokenBatch> micro_batches,
                                               const OptimizerStep& step) = 0;

  // Makes the updates that the last step left. Afterwards HostState is the weights after that step.
  virtual absl::Status Flush() = 0;

  // Σ −ln p over the unmasked tokens of a micro-batch of at most the plan's size. Flushes first, as
  // does Logits.
  virtual absl::StatusOr<double> EvaluateLossSum(const TokenBatch& batch) = 0;

  // logits[vocab] of what follows `tokens`: one document, at most shape.longest_document tokens.
  virtual absl::Status Logits(absl::Span<const int32_t> tokens, absl::Span<float> logits) = 0;

  // The gradient of the last step of `unit`, of the mean loss and before clipping, as the optimizer
  // reads it; with clipping it stays until the next step, without it others follow in its place.
  virtual GradientSlab HostGradient(int unit) = 0;

  // What the last TrainStep did on each stream, as events of step `step`. Times are those of the
  // steady clock, in seconds.
  virtual std::vector<TraceEvent> Trace(int64_t step) const = 0;

  // Bytes of device memory that all runs so far have worked in, up to the highest address.
  virtual size_t peak_device_bytes() const = 0;

  const Plan& plan() const { return plan_; }

 protected:
  explicit StepRunner(Plan plan) : plan_(std::move(plan)) {}
  Plan plan_;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_EXEC_STEP_RUNNER_H_
