// What a job fixes about its step before any plan is made.
#ifndef MILLRACE_ENGINE_SCHEDULE_STEP_SHAPE_H_
#define MILLRACE_ENGINE_SCHEDULE_STEP_SHAPE_H_

#include <cstdint>
#include <optional>

#include "engine/base/dtype.h"
#include "engine/model/model_spec.h"
#include "engine/ops/ops.h"
#include "engine/schedule/plan.h"

namespace millrace {

// What the loss head may use beyond weights, hidden states and gradients, what two threads' matrix
// products pack included.
inline constexpr int64_t kHeadBytes = int64_t{64} << 20;

// Shape of a job's step. Without `tokens_per_micro_batch`, micro-batches are as large as matrix
// products profit from: the largest whole number of sequences that divides the step, up to 4096
// tokens. `tokens_per_step` is a multiple of both. Chunks and tiles of the head are as large as
// `head_bytes` allow; all classes at once where that leaves chunks large enough.
StepShape ChooseStepShape(const ModelSpec& spec, int64_t tokens_per_step,
                          std::optional<int64_t> tokens_per_micro_batch, int64_t sequence_length,
                          bool clip, DType compute, int64_t head_bytes = kHeadBytes);

// Gives a shape that has all classes at once about four tiles, for a job that wants its head in
// tiles all the same. None where the vocabulary is too small for two.
void TileVocabulary(const ModelSpec& spec, StepShape* shape);

// What the ops must be ready for.
OpsLimits MakeOpsLimits(const ModelSpec& spec, const StepShape& shape);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_STEP_SHAPE_H_
