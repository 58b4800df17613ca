// The linear cross-entropy on the CPU, by tiles of classes.
//
// Logits of kColumns classes at a time are made in f32, in cache, go through the soft cap, if there
// is one, and are used there:
//   1. statistics: each such block's maximum and Σ e^(l − maximum); then the row's from all blocks'
//      and from those of the tiles before, in double;
//   2. the loss, in double, token by token;
//   3. dlogits = e^(l − max) · factor, factor = (1 + 2 · z_loss · lse) · scale / sum, less `scale`
//      at the target, times the cap's derivative 1 − (l / cap)², rounded to the compute type;
//   4. dw (+)= dlogitsᵀ · x and dx (+)= dlogits · w, sums in f32.
//
// Step 3 needs the statistics of all classes. With tiles, logits are made again for it. Without,
// step 1 leaves e^(l − the block's maximum), times that derivative, in the place of dlogits and
// step 3 only scales it: a probability is rounded, never a logit, and each exponential is taken
// once.
#ifndef MILLRACE_ENGINE_OPS_CPU_CROSS_ENTROPY_H_
#define MILLRACE_ENGINE_OPS_CPU_CROSS_ENTROPY_H_

#include "absl/status/status.h"
#include "engine/ops/cpu/context.h"
#include "engine/ops/ops.h"

namespace millrace {

absl::Status RunLinearCrossEntropy(const CpuContext& context, const LinearCrossEntropy& op);
absl::Status RunCrossEntropyStatistics(const CpuContext& context, const CrossEntropyStatistics& op);
absl::Status RunCrossEntropyLoss(const CpuContext& context, const CrossEntropyLoss& op);
absl::Status RunCrossEntropyGradient(const CpuContext& context, const CrossEntropyGradient& op);
size_t CrossEntropyWorkspaceBytes(const OpsLimits& limits, DType type, int threads);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_CPU_CROSS_ENTROPY_H_
