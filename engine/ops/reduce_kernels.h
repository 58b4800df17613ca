// Sums, scalings and conversions over rows and arrays, vectorized, on the calling thread.
#ifndef MILLRACE_ENGINE_OPS_REDUCE_KERNELS_H_
#define MILLRACE_ENGINE_OPS_REDUCE_KERNELS_H_

#include <cstdint>

#include "engine/base/dtype.h"

namespace millrace {

// sums[j] = Σ_i x[i, j] over `rows` rows for j in [0, columns); x has `stride` elements a row.
void ColumnSums(const void* x, DType type, int64_t rows, int64_t columns, int64_t stride,
                float* sums);

// to[i] += from[i]
void AddTo(const void* from, DType type, int64_t count, float* to);

// x[i] = factor · x[i]; factor 0 gives 0 whatever x[i] is.
void ScaleInPlace(void* x, DType type, int64_t count, float factor);

// to[i] = from[i], rounded to nearest even where `to` is bf16.
void Convert(const void* from, DType from_type, void* to, DType to_type, int64_t count);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_REDUCE_KERNELS_H_
