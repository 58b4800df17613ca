// Turns a matrix over, a tile at a time.
#ifndef MILLRACE_ENGINE_MODEL_TRANSPOSE_H_
#define MILLRACE_ENGINE_MODEL_TRANSPOSE_H_

#include <algorithm>
#include <cstdint>

#include "absl/types/span.h"

namespace millrace {

// Columns [first, first + count) of matrix [rows, columns] as rows of `out` [count, rows].
inline void TransposeColumns(absl::Span<const float> matrix, int64_t rows, int64_t columns,
                             int64_t first, int64_t count, float* out) {
  constexpr int64_t kTile = 32;
  for (int64_t r0 = 0; r0 < rows; r0 += kTile) {
    for (int64_t c0 = 0; c0 < count; c0 += kTile) {
      for (int64_t c = c0; c < std::min(c0 + kTile, count); ++c) {
        for (int64_t r = r0; r < std::min(r0 + kTile, rows); ++r) {
          out[c * rows + r] = matrix[r * columns + first + c];
        }
      }
    }
  }
}

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_TRANSPOSE_H_
