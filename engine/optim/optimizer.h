// Optimizers on the host: one fused, threaded pass over a unit's slabs.
//
//   double sum = 0;
//   for (int unit = 0; unit < state.num_units(); ++unit) {
//     sum += GradientSumOfSquares(state.layout(unit), gradient[unit], pool);
//   }
//   const double factor = ClipFactor(std::sqrt(sum), step.clip_norm);
//   UpdateUnit(state, unit, gradient[unit], step, factor, pool);
//
// For each element, in f32, with g = factor · gradient, t = step.step, rate lr:
//   w ← w − lr · weight_decay · w         (decoupled; tensors that decay)
// and then
//   AdamW (Loshchilov & Hutter 2019, algorithm 2, in the order of torch.optim.AdamW)
//     m ← m + (1 − β1) · (g − m)
//     v ← β2 · v + (1 − β2) · g²
//     w ← w − lr / (1 − β1^t) · m / (√v / √(1 − β2^t) + ε)
//   SGD with momentum (torch.optim.SGD, but that its weight_decay is a gradient)
//     m ← µ · m + g
//     w ← w − lr · m
//   Lion (Chen et al. 2023, algorithm 2)
//     w ← w − lr · sign(β1 · m + (1 − β1) · g)
//     m ← m + (1 − β2) · (g − m)
//
// The pass reads gradient, weights and moments once and writes weights and moments in place: 26
// bytes a parameter with a split master, f32 moments of AdamW and bf16 gradients. Moments that are
// quantized are decoded, updated in f32, used, and encoded again with new exponents while their
// block lies in the first-level cache; bf16 weights are rounded stochastically. Both kinds of
// rounding depend on (seed, step, element) alone (dither.h), so results do not depend on the number
// of threads.
#ifndef MILLRACE_ENGINE_OPTIM_OPTIMIZER_H_
#define MILLRACE_ENGINE_OPTIM_OPTIMIZER_H_

#include <cstdint>

#include "engine/base/thread_pool.h"
#include "engine/optim/gradient_slab.h"
#include "engine/state/host_state.h"

namespace millrace {

// Each optimizer reads its own.
struct OptimizerParams {
  double beta1 = 0.9;         // AdamW, Lion; in [0, 1)
  double beta2 = 0.95;        // AdamW, Lion; in [0, 1)
  double epsilon = 1e-8;      // AdamW
  double momentum = 0.9;      // SGD: µ, in [0, 1)
  double weight_decay = 0.1;  // decoupled; only where TensorLayout::decay
};

// All that one optimizer step needs to know besides gradients. Which optimizer it is, HostState
// knows.
struct OptimizerStep {
  int64_t step = 1;  // counted from 1
  double learning_rate = 0;
  OptimizerParams params;
  double clip_norm = 0;  // 0: no clipping
  uint64_t seed = 0;     // of rounding
};

// Updates one unit from its gradient, scaled by `gradient_factor` (see ClipFactor).
void UpdateUnit(HostState& state, int unit, const GradientSlab& gradient, const OptimizerStep& step,
                double gradient_factor, ThreadPool& pool);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPTIM_OPTIMIZER_H_
