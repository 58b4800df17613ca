// Activations, vectorized, on the calling thread.
#ifndef MILLRACE_ENGINE_OPS_CPU_ACTIVATION_KERNELS_H_
#define MILLRACE_ENGINE_OPS_CPU_ACTIVATION_KERNELS_H_

#include <cstdint>

#include "engine/ops/ops.h"

namespace millrace {

// Tokens [begin, end) of `op`, forward when op.dx is nullptr, otherwise backward.
void ActivationRows(const Activation& op, DType type, int64_t begin, int64_t end);

// Rotates q and k of tokens [begin, end).
void RotaryRows(const Rotary& op, DType type, int64_t begin, int64_t end);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_CPU_ACTIVATION_KERNELS_H_
