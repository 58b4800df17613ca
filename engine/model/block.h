// The decoder block of every family: a stateless template driven by a ModelSpec.
//
//   n1 = norm(x);  [q k v] = n1·Wqkvᵀ;  rotate q, k;  a = attention(q, k, v)
//   h  = x + a·Woᵀ
//   n2 = norm(h);  u = n2·Winᵀ;         m = activation(u)
//   y  = h + m·Woutᵀ
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

// What the units of one pass over one micro-batch have in common. All pointers outlive the call's
// work on the stream.
struct PassContext {
  const ModelSpec& spec;
  Ops& ops;
  Stream& stream;
  int64_t tokens;
  absl::Span<const int32_t> boundaries;  // cumulative document lengths, host
  const int32_t* positions;              // [tokens], device
  const float* rotary_table;             // device; nullptr without rotary embedding
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
// are filled, all that backward needs, and the last product is spared.
void BlockForward(const PassContext& pass, const SlabLayout& layout, const void* weights,
                  const void* x, void* saved, void* remade, void* y);

// Fills `remade` as forward did, from x and `saved`: norms and the activation, no product.
void BlockRemake(const PassContext& pass, const SlabLayout& layout, const void* weights,
                 const void* x, const void* saved, void* remade);

// Turns the gradient of y into that of x, in place, and adds the weights' to `gradient`.
void BlockBackward(const PassContext& pass, const SlabLayout& layout, const void* weights,
                   const void* x, const void* saved, const void* remade, void* scratch, void* dx,
                   const SlabGradient& gradient);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_BLOCK_H_
