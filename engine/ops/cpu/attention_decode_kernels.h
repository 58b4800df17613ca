// Products of a few queries with many keys where these lie, vectorized, on the calling thread.
#ifndef MILLRACE_ENGINE_OPS_CPU_ATTENTION_DECODE_KERNELS_H_
#define MILLRACE_ENGINE_OPS_CPU_ATTENTION_DECODE_KERNELS_H_

#include <cstdint>

#include "engine/base/dtype.h"

namespace millrace {

// Keys or values of one head: `count` rows of `head_dim` elements, `stride` elements apart.
struct CachedRows {
  const void* data;
  DType type;
  int64_t count, stride, head_dim;
};

// scores[query, key] = q[query]·keys[key], for q[queries, head_dim]; rows of scores lie
// `score_stride` elements apart.
void ScoreCachedKeys(const float* q, int64_t queries, const CachedRows& keys, float* scores,
                     int64_t score_stride);

// o[query, :] += Σ_key probabilities[query, key] · values[key, :], for o[queries, head_dim]; keys
// in ascending order.
void AddCachedValues(const float* probabilities, int64_t probability_stride, int64_t queries,
                     const CachedRows& values, float* o);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_CPU_ATTENTION_DECODE_KERNELS_H_
