// The angles of rotary position embedding (Su et al. 2021, equation 15).
#ifndef MILLRACE_ENGINE_OPS_ROTARY_TABLE_H_
#define MILLRACE_ENGINE_OPS_ROTARY_TABLE_H_

#include <cstdint>

namespace millrace {

// table[positions, head_dim/2, 2]: cosine and sine of position · θ^(−2i/head_dim), computed in
// double.
void FillRotaryTable(int64_t positions, int64_t head_dim, double theta, float* table);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_ROTARY_TABLE_H_
