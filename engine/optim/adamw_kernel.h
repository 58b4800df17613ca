// The AdamW pass over a range of elements, in the widest vectors of the processor at hand.
#ifndef MILLRACE_ENGINE_OPTIM_ADAMW_KERNEL_H_
#define MILLRACE_ENGINE_OPTIM_ADAMW_KERNEL_H_

#include <cstdint>

#include "engine/base/dtype.h"

namespace millrace {

// The slabs of a unit, from their begin.
struct AdamWSlabs {
  void* weights;         // bf16 high halves with `low_halves`, else f32
  int16_t* low_halves;   // nullptr: weights are f32
  float* first_moment;   // m
  float* second_moment;  // v
  const void* gradient;
  DType gradient_dtype;
};

// The formula of optimizer.h with everything that is the same for all elements worked out.
struct AdamWFactors {
  float gradient;            // factor of the gradient
  float one_minus_beta1;     // 1 − β1
  float beta2;               // β2
  float one_minus_beta2;     // 1 − β2
  float step_size;           // lr / (1 − β1^t)
  float inverse_sqrt_bias2;  // 1 / √(1 − β2^t)
  float epsilon;             // ε
  float keep;                // 1 − lr · weight_decay; 1 where nothing decays
};

// Updates elements [begin, end); both are multiples of kAdamWGrain.
inline constexpr int64_t kAdamWGrain = 32;
void AdamWUpdateRange(const AdamWSlabs& slabs, const AdamWFactors& factors, int64_t begin,
                      int64_t end);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPTIM_ADAMW_KERNEL_H_
