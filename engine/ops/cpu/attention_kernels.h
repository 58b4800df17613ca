// Tiles of causal attention between the matrix products, vectorized, on the calling thread.
#ifndef MILLRACE_ENGINE_OPS_CPU_ATTENTION_KERNELS_H_
#define MILLRACE_ENGINE_OPS_CPU_ATTENTION_KERNELS_H_

#include <cstdint>

#include "engine/base/dtype.h"

namespace millrace {

// Scores of `rows` queries (padded to padded_rows) with consecutive keys, in `columns` columns.
// Query row r sees the keys of columns [first_visible + r + 1 − window, first_visible + r + 1), as
// far as there are such columns.
struct ScoreTile {
  int64_t rows, padded_rows, columns;
  int64_t first_visible;
  int64_t window;       // 0: without end
  float scale;          // s = scale · score
  float softcap;        // not 0: the scores have gone through CapScores, s = score
  const float* scores;  // [padded_rows, columns]
  DType type;           // of the compute type's matrices below
};

// score = cap · tanh(scale · score / cap).
void CapScores(float* scores, int64_t stride, int64_t rows, int64_t columns, float scale,
               float cap);

// One step of the online softmax:
//   m' = max(m, max s), p = e^(s − m'), l' = l · e^(m − m') + Σ p, o' = o · e^(m − m').
// `first`: m, l and o hold nothing yet, and o is left alone. Hidden scores and padded rows get p =
// 0.
void SoftmaxTile(const ScoreTile& tile, bool first, void* probabilities, float* row_max,
                 float* row_sum, float* output, int64_t head_dim);

// output[r, :] = o[r, :] / l, log_sum_exp[r] = m + ln l, where it is wanted.
void FinishRows(const float* o, const float* row_max, const float* row_sum, int64_t rows,
                int64_t head_dim, DType type, void* output, int64_t output_stride,
                float* log_sum_exp);

// p = e^(s − log_sum_exp), ds = scale · p · (dp − d), with a soft cap times 1 − (s / cap)²; 0 where
// hidden or padded.
void SoftmaxBackwardTile(const ScoreTile& tile, const float* dprobabilities,
                         const float* log_sum_exp, const float* d, void* probabilities,
                         void* dscores);

// d[r] = Σ_j a[r, j] · b[r, j]
void RowDots(const void* a, const void* b, int64_t stride, int64_t rows, int64_t columns,
             DType type, float* d);

// Copies rows × columns into a matrix without gaps, and zeroes rows up to padded_rows.
void PackRows(const void* from, int64_t stride, int64_t rows, int64_t padded_rows, int64_t columns,
              DType type, void* to);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_CPU_ATTENTION_KERNELS_H_
