// The linear cross-entropy on the CPU.
//
// For each chunk of tokens, with a tile being kVocabTile columns of the vocabulary:
//   1. logits of a tile = x · wᵀ in f32, in cache; their maximum m_tile, e^(l − m_tile) kept in the
//      compute type, and its sum in f32;
//   2. log-sum-exp of the row from all tiles' maxima and sums; the loss from it and from the
//      target's logit, summed in double, token by token;
//   3. dlogits = e^(l − m_tile) · e^(m_tile − log_sum_exp) · scale, less `scale` at the target, in
//      place: a probability is rounded, never a logit, and each exponential is taken once;
//   4. dx = dlogits · w and dw (+)= dlogitsᵀ · x.
#ifndef MILLRACE_ENGINE_OPS_CPU_CROSS_ENTROPY_H_
#define MILLRACE_ENGINE_OPS_CPU_CROSS_ENTROPY_H_

#include "absl/status/status.h"
#include "engine/ops/cpu/context.h"
#include "engine/ops/ops.h"

namespace millrace {

absl::Status RunLinearCrossEntropy(const CpuContext& context, const LinearCrossEntropy& op);
size_t CrossEntropyWorkspaceBytes(const OpsLimits& limits, DType type, int threads);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_CPU_CROSS_ENTROPY_H_
