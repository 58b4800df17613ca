// The optimizer's pass over a range of a unit, in the widest vectors of the processor at hand.
#ifndef MILLRACE_ENGINE_OPTIM_UPDATE_KERNEL_H_
#define MILLRACE_ENGINE_OPTIM_UPDATE_KERNEL_H_

#include <cstdint>

#include "absl/types/span.h"
#include "engine/base/dtype.h"
#include "engine/optim/dither.h"
#include "engine/state/optimizer_kind.h"
#include "engine/state/quantized_moment.h"
#include "engine/state/recipe.h"

namespace millrace {

// The slabs of a unit, from their begin.
struct UpdateSlabs {
  WeightFormat weight_format;
  void* weights;        // bf16, or f32 under kF32
  int16_t* low_halves;  // kSplit
  // Either these or the quantized ones; second ones for AdamW only.
  float* first_moment;
  float* second_moment;
  QuantizedMoment first_codes, second_codes;
  const void* gradient;
  DType gradient_dtype;
  uint64_t first_element;  // number in the model of the slab's first element
};

// The formulas of optimizer.h with everything that is the same for all elements worked out.
struct UpdateFactors {
  OptimizerKind optimizer;
  float gradient;            // factor of the gradient
  float momentum;            // µ: SGD
  float one_minus_beta1;     // 1 − β1
  float beta2;               // β2
  float one_minus_beta2;     // 1 − β2
  float step_size;           // AdamW: lr / (1 − β1^t); else lr
  float inverse_sqrt_bias2;  // AdamW: 1 / √(1 − β2^t)
  float epsilon;             // AdamW: ε
  RoundingKey rounding;
};

// Elements from the end of the segment before up to `end`, a multiple of 32.
struct DecaySegment {
  int64_t end;
  float keep;  // 1 − lr · weight_decay; 1 where nothing decays
};

// Updates elements [begin, end), multiples of kUpdateGrain; `segments` cover the slab.
inline constexpr int64_t kUpdateGrain = kMomentBlock;
void UpdateRange(const UpdateSlabs& slabs, const UpdateFactors& factors,
                 absl::Span<const DecaySegment> segments, int64_t begin, int64_t end);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPTIM_UPDATE_KERNEL_H_
