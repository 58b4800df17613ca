// Rows of a normalization, vectorized, on the calling thread.
#ifndef MILLRACE_ENGINE_OPS_CPU_NORM_KERNELS_H_
#define MILLRACE_ENGINE_OPS_CPU_NORM_KERNELS_H_

#include <cstdint>

#include "engine/ops/ops.h"

namespace millrace {

// Tokens [begin, end) of `op`, whose activations are of `type`.
void NormForwardRows(const NormForward& op, DType type, int64_t begin, int64_t end);

// Likewise; adds these tokens' share of the weights' gradients to dweight and dbias [width], where
// they are not nullptr.
void NormBackwardRows(const NormBackward& op, DType type, int64_t begin, int64_t end,
                      float* dweight, float* dbias);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_CPU_NORM_KERNELS_H_
