// Cosines and sines for rotary position embeddings.
#ifndef MILLRACE_ENGINE_OPS_ROTARY_TABLE_H_
#define MILLRACE_ENGINE_OPS_ROTARY_TABLE_H_

#include <cstddef>
#include <cstdint>

namespace millrace {

constexpr size_t RotaryTableBytes(int64_t max_positions, int64_t head_dim) {
  return static_cast<size_t>(max_positions) * head_dim * sizeof(float);
}

// table[position, i, :] = cos and sin of position · θ^(−2i/head_dim), computed in double.
// `table` is [max_positions, head_dim/2, 2].
void FillRotaryTable(int64_t max_positions, int64_t head_dim, double theta, float* table);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_ROTARY_TABLE_H_
