// Soft caps of logits (Gemma 2), vectorized, on the calling thread.
#ifndef MILLRACE_ENGINE_OPS_CPU_SOFT_CAP_H_
#define MILLRACE_ENGINE_OPS_CPU_SOFT_CAP_H_

#include <cstdint>

namespace millrace {

// x[i] = cap · tanh(x[i] / cap)
void SoftCapInPlace(float* x, int64_t count, float cap);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_CPU_SOFT_CAP_H_
