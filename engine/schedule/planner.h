// Chooses how a job's step runs within a device budget.
#ifndef MILLRACE_ENGINE_SCHEDULE_PLANNER_H_
#define MILLRACE_ENGINE_SCHEDULE_PLANNER_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "engine/ops/ops.h"
#include "engine/schedule/plan.h"

namespace millrace {

// Shape of a job's step. Without `tokens_per_micro_batch`, micro-batches are as large as matrix
// products profit from: the largest whole number of sequences that divides the step, up to 4096
// tokens. `tokens_per_step` is a multiple of both. Chunks and tiles of the head are as large as 64
// MiB of workspace allow, two threads' packing of matrix products included; all classes at once
// where that leaves chunks large enough.
StepShape ChooseStepShape(const ModelSpec& spec, int64_t tokens_per_step,
                          std::optional<int64_t> tokens_per_micro_batch, int64_t sequence_length,
                          bool clip, DType compute);

// What the ops must be ready for.
OpsLimits MakeOpsLimits(const ModelSpec& spec, const StepShape& shape);

// The plan that keeps the most activations within the budget. RESOURCE_EXHAUSTED when not even one
// block's fit: the message says how many bytes are needed at least, and what would lower them.
absl::StatusOr<Plan> MakePlan(const ScheduledModel& model, const StepShape& shape, bool unified,
                              size_t device_budget_bytes);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_PLANNER_H_
