// The decoder block of every family: a stateless template driven by a ModelSpec.
//
//   [q k v] = norm(x)·Wqkvᵀ;  q, k = rotate(norm(q)), rotate(norm(k));  a = attention(q, k, v)
//   h = x + norm(a·Woᵀ)
//   m = activation(norm(h)·Winᵀ), with a parallel residual activation(norm(x)·Winᵀ)
//   y = h + norm(m·Woutᵀ)
//
// where the spec says which of the norms there are, and where positions are learned nothing turns.
//
// Nothing is kept between calls: weights are a slab bound by its layout, everything that backward
// needs again lies in `saved`, which the caller keeps or lets forward make anew.
#ifndef MILLRACE_ENGINE_MODEL_BLOCK_H_
#define MILLRACE_ENGINE_MODEL_BLOCK_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "engine/device/device.h"
#include "engine/model/model_spec.h"
#include "engine/model/slab_layout.h"
#include "engine/ops/ops.h"

namespace millrace {

// Keys and values of earlier tokens, for a forward pass over more tokens of the same sequences. Row
// r of layer l is elements [(l · rows + r) · kv_size, … + kv_size) of each.
struct KeyValueCache {
  void *keys, *values;  // device, of the compute type
  int64_t rows;         // of a layer
  // Sequence i's keys, those of this pass included, are rows [key_begin[i], key_begin[i] +
  // key_count[i]). Host; outlive the call's work on the stream.
  absl::Span<const int64_t> key_begin, key_count;
};

// What the units of one pass over one micro-batch have in common. All pointers outlive the call's
// work on the stream.
struct PassContext {
  const ModelSpec& spec;
  Ops& ops;
  Stream& stream;
  int64_t tokens;
  absl::Span<const int32_t> boundaries;  // cumulative document lengths, host
  const int32_t* positions;              // [tokens], device
  // Device; nullptr where the spec has no such rotary embedding.
  const float* rotary_table;
  const float* window_rotary_table = nullptr;
  // Set: document i goes on with sequence i of the cache, which gets its keys and values. Forward
  // only.
  const KeyValueCache* cache = nullptr;
};

// A slab's gradient: its elements have the slab's offsets.
struct SlabGradient {
  void* data = nullptr;
  DType dtype = DType::kF32;
  bool accumulate = false;

  // Of the tensor with `role`; nothing when the slab has none.
  GradientTarget Of(const SlabLayout& layout, TensorRole role) const;
};

// Address of a tensor in an uploaded slab; nullptr when the slab has no such tensor.
const void* BindTensor(const SlabLayout& layout, const void* slab, DType dtype, TensorRole role);

// Bytes of what forward leaves for backward, of that part of it which element-wise passes make
// again from the rest (`remade`), and of backward's own working memory, for a micro-batch of
// `tokens`.
size_t BlockSavedBytes(const ModelSpec& spec, int64_t tokens, DType dtype);
size_t BlockRemadeBytes(const ModelSpec& spec, int64_t tokens, DType dtype);
size_t BlockScratchBytes(const ModelSpec& spec, int64_t tokens, DType dtype);

// y[tokens, hidden] from x; fills `saved` and `remade`. y may not be x. Without y only those two
// are filled, all that backward needs, and products that y alone needs are spared.
void BlockForward(const PassContext& pass, const SlabLayout& layout, const void* weights,
                  const void* x, void* saved, void* remade, void* y);

// Fills `remade` as forward did, from x and `saved`: element-wise passes, no product.
void BlockRemake(const PassContext& pass, const SlabLayout& layout, const void* weights,
                 const void* x, const void* saved, void* remade);

// Turns the gradient of y into that of x, in place, and adds the weights' to `gradient`.
void BlockBackward(const PassContext& pass, const SlabLayout& layout, const void* weights,
                   const void* x, const void* saved, const void* remade, void* scratch, void* dx,
                   const SlabGradient& gradient);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_BLOCK_H_
