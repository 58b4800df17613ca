// The global gradient norm and what clipping makes of it.
#ifndef MILLRACE_ENGINE_OPTIM_GRADIENT_NORM_H_
#define MILLRACE_ENGINE_OPTIM_GRADIENT_NORM_H_

#include "engine/base/thread_pool.h"
#include "engine/model/slab_layout.h"
#include "engine/optim/gradient_slab.h"

namespace millrace {

// Σ g² over a unit's gradient, in double, in an order that depends neither on the number of threads
// nor on the width of the processor's vectors. Not finite when an element is not.
double GradientSumOfSquares(const SlabLayout& layout, const GradientSlab& gradient,
                            ThreadPool& pool);

// min(1, clip_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_; 1 when clip_norm is 0.
// `norm` must be finite: a step whose norm is not must not be applied.
double ClipFactor(double norm, double clip_norm);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPTIM_GRADIENT_NORM_H_
