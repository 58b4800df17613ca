// AdamW on the host: one fused, threaded pass over a unit's slabs.
//
//   double sum = 0;
//   for (int unit = 0; unit < state.num_units(); ++unit) {
//     sum += GradientSumOfSquares(state.layout(unit), gradient[unit], pool);
//   }
//   const double factor = ClipFactor(std::sqrt(sum), step.clip_norm);
//   UpdateUnit(state, unit, gradient[unit], step, factor, pool);
//
// For each element, in f32, with g = factor · gradient, t = step.step (Loshchilov & Hutter 2019,
// algorithm 2, in the order of torch.optim.AdamW):
//   w ← w − lr · weight_decay · w         (tensors that decay)
//   m ← m + (1 − β1) · (g − m)
//   v ← β2 · v + (1 − β2) · g²
//   w ← w − lr / (1 − β1^t) · m / (√v / √(1 − β2^t) + ε)
//
// The pass reads gradient, master and moments once and writes master and moments in place: 26
// bytes a parameter with a split master and bf16 gradients. Results do not depend on the number of
// threads.
#ifndef MILLRACE_ENGINE_OPTIM_OPTIMIZER_H_
#define MILLRACE_ENGINE_OPTIM_OPTIMIZER_H_

#include <cstdint>

#include "engine/base/thread_pool.h"
#include "engine/optim/gradient_slab.h"
#include "engine/state/host_state.h"

namespace millrace {

struct AdamWParams {
  double beta1 = 0.9;   // in [0, 1)
  double beta2 = 0.95;  // in [0, 1)
  double epsilon = 1e-8;
  double weight_decay = 0.1;  // decoupled; only where TensorLayout::decay
};

// All that one optimizer step needs to know besides gradients.
struct OptimizerStep {
  int64_t step = 1;  // counted from 1
  double learning_rate = 0;
  AdamWParams adamw;
  double clip_norm = 0;  // 0: no clipping
};

// Updates one unit from its gradient, scaled by `gradient_factor` (see ClipFactor).
void UpdateUnit(HostState& state, int unit, const GradientSlab& gradient, const OptimizerStep& step,
                double gradient_factor, ThreadPool& pool);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPTIM_OPTIMIZER_H_
