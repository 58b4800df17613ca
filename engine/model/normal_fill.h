// Normal random numbers in bulk: single precision, vectorized, four for each Philox call, and
// bitwise the same on every processor (no fused multiply-add, no library functions).
#ifndef MILLRACE_ENGINE_MODEL_NORMAL_FILL_H_
#define MILLRACE_ENGINE_MODEL_NORMAL_FILL_H_

#include <cstdint>

#include "absl/types/span.h"

namespace millrace {

// out[i] = deviation · (number first_index + i of the normal sequence `seed`, `stream`).
void FillNormal(uint64_t seed, uint64_t stream, uint64_t first_index, float deviation,
                absl::Span<float> out);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_NORMAL_FILL_H_
