// Random initial weights.
//
// Each weight is a function of (seed, name of its tensor in a model directory, position in that
// tensor as [out, in]), so that it depends neither on threads nor on how tensors are fused, ordered
// or sharded, and is bitwise the same on every machine.
#ifndef MILLRACE_ENGINE_MODEL_INITIALIZER_H_
#define MILLRACE_ENGINE_MODEL_INITIALIZER_H_

#include <cstdint>

#include "absl/types/span.h"
#include "engine/base/thread_pool.h"
#include "engine/model/model_spec.h"
#include "engine/model/slab_layout.h"

namespace millrace {

// Fills all `layout.count` elements of `slab`: matrices and embeddings normal with deviation
// spec.initializer_range (projections into the residual stream divided by sqrt(2·num_layers) with
// spec.scaled_residual_init), norm weights 1, biases and padding 0.
void InitializeSlab(const ModelSpec& spec, const SlabLayout& layout, uint64_t seed,
                    ThreadPool& threads, absl::Span<float> slab);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_INITIALIZER_H_
