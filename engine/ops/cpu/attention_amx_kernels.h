// Strips of causal attention between the matrix products of attention_amx.h, in AVX-512. As
// attention_kernels.h, but of kAmxBlock rows that need not reach over all of a tile's columns, and
// backward with keys as rows.
#ifndef MILLRACE_ENGINE_OPS_CPU_ATTENTION_AMX_KERNELS_H_
#define MILLRACE_ENGINE_OPS_CPU_ATTENTION_AMX_KERNELS_H_

#include <cstdint>

#include "engine/base/dtype.h"

namespace millrace {

// Scores of up to 32 queries with consecutive keys.
struct QueryStrip {
  int64_t rows;     // queries; of the 32 the others are padding
  int64_t columns;  // keys, a multiple of 32
  // Row r sees the keys of columns [first_visible + r + 1 − window, first_visible + r + 1), as far
  // as there are such columns; window 0: without end.
  int64_t first_visible, window;
  float scale;          // s = scale · score; with a soft cap, which has been applied, 1
  const float* scores;  // [32, stride]
  int64_t stride;
};

// One step of the online softmax, as SoftmaxTile: to probabilities[32, probability_stride].
void SoftmaxStrip(const QueryStrip& strip, bool first, BFloat16* probabilities,
                  int64_t probability_stride, float* row_max, float* row_sum, float* output,
                  int64_t head_dim);

// Scores of 32 keys with queries, and the gradients to their probabilities.
struct KeyStrip {
  int64_t columns;  // queries, with padding: a multiple of 32
  // Row r is seen by the queries of columns [first_visible + r, first_visible + r + window), as far
  // as there are such columns; window 0: without end.
  int64_t first_visible, window;
  float scale;                  // s = scale · score
  float softcap;                // not 0: the scores have gone through CapScores, s = score
  const float* scores;          // [32, stride]
  const float* dprobabilities;  // likewise
  int64_t stride;
  const float* log_sum_exp;  // [columns]; 0 for padding
  const float* delta;        // [columns]
};

// p = e^(s − log_sum_exp), ds = scale · p · (dp − delta), with a soft cap times 1 − (s / cap)²,
// both [32, columns]; 0 where hidden. Padding that has scores and gradients of 0 gets ds = 0.
void SoftmaxBackwardStrip(const KeyStrip& strip, BFloat16* probabilities, BFloat16* dscores);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_CPU_ATTENTION_AMX_KERNELS_H_
