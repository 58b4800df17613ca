// Tiles of logits between the matrix products of the loss, vectorized, on the calling thread.
#ifndef MILLRACE_ENGINE_OPS_CPU_CROSS_ENTROPY_KERNELS_H_
#define MILLRACE_ENGINE_OPS_CPU_CROSS_ENTROPY_KERNELS_H_

#include <cstdint>

#include "engine/base/dtype.h"

namespace millrace {

// Logits l may have gone through a soft cap, other than 0. What is stored is then multiplied by the
// cap's derivative, 1 − (l / softcap)².

// For each of `rows` rows of f32 logits: row_max = max l, row_sum = Σ e^(l − row_max), and unless
// `exponentials` is nullptr these e^(l − row_max).
void ExponentialRows(const float* logits, int64_t logits_stride, int64_t rows, int64_t columns,
                     float softcap, float* row_max, float* row_sum, DType type, void* exponentials,
                     int64_t exponentials_stride);

// For each row of f32 logits: gradients = e^(l − row_max) · row_factor, for l up to row_max. A
// factor of 0 gives 0 whatever l is.
void GradientRows(const float* logits, int64_t logits_stride, int64_t rows, int64_t columns,
                  float softcap, const float* row_max, const float* row_factor, DType type,
                  void* gradients, int64_t gradients_stride);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_CPU_CROSS_ENTROPY_KERNELS_H_
