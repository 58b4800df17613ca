#include "engine/model/block.h"

#include <algorithm>

#include "engine/model/carver.h"

namespace millrace {
namespace {

struct Saved {
  Saved(const ModelSpec& spec, int64_t tokens, DType dtype, const void* saved, const void* remade) {
    const size_t size = SizeOf(dtype);
    const bool layer_norm = spec.norm == NormKind::kLayerNorm;
    Carver carver(const_cast<void*>(saved));
    qkv = carver.Take(tokens * spec.qkv_size(), size);
    attention = carver.Take(tokens * spec.query_size(), size);
    log_sum_exp = carver.TakeFloats(tokens * spec.num_heads);
    middle = carver.Take(tokens * spec.hidden_size, size);
    mlp_in = carver.Take(tokens * spec.mlp_in_size(), size);
    bytes = carver.used();

    Carver again(const_cast<void*>(remade));
    attention_input = again.Take(tokens * spec.hidden_size, size);
    mlp_input = again.Take(tokens * spec.hidden_size, size);
    activation = again.Take(tokens * spec.intermediate_size, size);
    attention_rstd = again.TakeFloats(tokens);
    mlp_rstd = again.TakeFloats(tokens);
    attention_mean = layer_norm ? again.TakeFloats(tokens) : nullptr;
    mlp_mean = layer_norm ? again.TakeFloats(tokens) : nullptr;
    remade_bytes = again.used();
  }

  void *qkv, *attention, *middle, *mlp_in;
  float* log_sum_exp;
  void *attention_input, *mlp_input, *activation;
  float *attention_rstd, *mlp_rstd, *attention_mean, *mlp_mean;
  size_t bytes, remade_bytes;
};

// The gradients that backward makes on its way; those of the two halves share their memory.
struct Scratch {
  Scratch(const ModelSpec& spec, int64_t tokens, DType dtype, void* base) {
    const size_t size = SizeOf(dtype);
    Carver carver(base);
    dnormed = carver.Take(tokens * spec.hidden_size, size);
    Carver half = carver;
    dactivation = carver.Take(tokens * spec.intermediate_size, size);
    dmlp_in = carver.Take(tokens * spec.mlp_in_size(), size);
    dattention = half.Take(tokens * spec.query_size(), size);
    dqkv = half.Take(tokens * spec.qkv_size(), size);
    bytes = std::max(carver.used(), half.used());
  }

  void *dnormed, *dactivation, *dmlp_in, *dattention, *dqkv;
  size_t bytes;
};

class Block {
 public:
  Block(const PassContext& pass, const SlabLayout& layout, const void* weights)
      : pass_(pass),
        spec_(pass.spec),
        layout_(layout),
        weights_(weights),
        dtype_(pass.ops.compute_dtype()) {}

  DType dtype() const { return dtype_; }

  void Norm(TensorRole weight, TensorRole bias, const void* x, void* y, float* mean, float* rstd) {
    pass_.ops.Run(pass_.stream, NormForward{.layer_norm = spec_.norm == NormKind::kLayerNorm,
                                            .tokens = pass_.tokens,
                                            .width = spec_.hidden_size,
                                            .epsilon = spec_.norm_epsilon,
                                            .x = x,
                                            .weight = Weight(weight),
                                            .bias = Weight(bias),
                                            .y = y,
                                            .mean = mean,
                                            .rstd = rstd});
  }

  // dx = dx + d/dx, so the residual path is in it already.
  void NormGradient(TensorRole weight, TensorRole bias, const SlabGradient& gradient,
                    const void* dy, const void* x, const float* mean, const float* rstd, void* dx) {
    pass_.ops.Run(pass_.stream, NormBackward{.layer_norm = spec_.norm == NormKind::kLayerNorm,
                                             .tokens = pass_.tokens,
                                             .width = spec_.hidden_size,
                                             .dy = dy,
                                             .x = x,
                                             .weight = Weight(weight),
                                             .mean = mean,
                                             .rstd = rstd,
                                             .residual = dx,
                                             .dx = dx,
                                             .dweight = gradient.Of(layout_, weight),
                                             .dbias = gradient.Of(layout_, bias)});
  }

  void Linear(TensorRole weight, TensorRole bias, const void* x, const void* residual, void* y) {
    const TensorLayout& tensor = *layout_.Find(weight);
    pass_.ops.Run(pass_.stream, LinearForward{.tokens = pass_.tokens,
                                              .in = tensor.columns,
                                              .out = tensor.rows,
                                              .x = x,
                                              .weight = Weight(weight),
                                              .bias = Weight(bias),
                                              .residual = residual,
                                              .y = y,
                                              .y_dtype = dtype_});
  }

  void LinearGradient(TensorRole weight, TensorRole bias, const SlabGradient& gradient,
                      const void* dy, const void* x, void* dx) {
    const TensorLayout& tensor = *layout_.Find(weight);
    pass_.ops.Run(pass_.stream, LinearBackward{.tokens = pass_.tokens,
                                               .in = tensor.columns,
                                               .out = tensor.rows,
                                               .dy = dy,
                                               .x = x,
                                               .weight = Weight(weight),
                                               .dx = dx,
                                               .dweight = gradient.Of(layout_, weight),
                                               .dbias = gradient.Of(layout_, bias)});
  }

  void Rotate(void* qkv, bool backward) {
    if (spec_.position != PositionKind::kRotary) return;
    pass_.ops.Run(pass_.stream, Rotary{.tokens = pass_.tokens,
                                       .heads = spec_.num_heads + spec_.num_kv_heads,
                                       .head_dim = spec_.head_dim,
                                       .rotary_width = spec_.rotary_width,
                                       .row_stride = spec_.qkv_size(),
                                       .positions = pass_.positions,
                                       .cos_sin_table = pass_.rotary_table,
                                       .x = qkv,
                                       .backward = backward});
  }

  void AttentionNorm(const void* x, const Saved& saved) {
    Norm(TensorRole::kAttentionNorm, TensorRole::kAttentionNormBias, x, saved.attention_input,
         saved.attention_mean, saved.attention_rstd);
  }
  void MlpNorm(const Saved& saved) {
    Norm(TensorRole::kMlpNorm, TensorRole::kMlpNormBias, saved.middle, saved.mlp_input,
         saved.mlp_mean, saved.mlp_rstd);
  }
  void Activate(const Saved& saved) {
    pass_.ops.Run(pass_.stream, Activation{.kind = spec_.activation,
                                           .gated = spec_.gated_mlp,
                                           .tokens = pass_.tokens,
                                           .width = spec_.intermediate_size,
                                           .x = saved.mlp_in,
                                           .y = saved.activation});
  }

  // Attention inside the fused matrix of q, k and v.
  AttentionInput Attention(const void* qkv) const {
    const auto column = [&](int64_t elements) {
      return static_cast<const std::byte*>(qkv) + static_cast<size_t>(elements) * SizeOf(dtype_);
    };
    return {.tokens = pass_.tokens,
            .num_heads = spec_.num_heads,
            .num_kv_heads = spec_.num_kv_heads,
            .head_dim = spec_.head_dim,
            .boundaries = pass_.boundaries,
            .scale = static_cast<float>(spec_.attention_scale),
            .q = column(0),
            .k = column(spec_.query_size()),
            .v = column(spec_.query_size() + spec_.kv_size()),
            .q_stride = spec_.qkv_size(),
            .k_stride = spec_.qkv_size(),
            .v_stride = spec_.qkv_size()};
  }

 private:
  const void* Weight(TensorRole role) const { return BindTensor(layout_, weights_, dtype_, role); }

  const PassContext& pass_;
  const ModelSpec& spec_;
  const SlabLayout& layout_;
  const void* weights_;
  DType dtype_;
};

}  // namespace

const void* BindTensor(const SlabLayout& layout, const void* slab, DType dtype, TensorRole role) {
  const TensorLayout* tensor = layout.Find(role);
  if (tensor == nullptr) return nullptr;
  return static_cast<const std::byte*>(slab) + static_cast<size_t>(tensor->offset) * SizeOf(dtype);
}

GradientTarget SlabGradient::Of(const SlabLayout& layout, TensorRole role) const {
  const TensorLayout* tensor = layout.Find(role);
  if (tensor == nullptr || data == nullptr) return {};
  return {static_cast<std::byte*>(data) + static_cast<size_t>(tensor->offset) * SizeOf(dtype),
          dtype, accumulate};
}

size_t BlockSavedBytes(const ModelSpec& spec, int64_t tokens, DType dtype) {
  return Saved(spec, tokens, dtype, nullptr, nullptr).bytes;
}

size_t BlockRemadeBytes(const ModelSpec& spec, int64_t tokens, DType dtype) {
  return Saved(spec, tokens, dtype, nullptr, nullptr).remade_bytes;
}

size_t BlockScratchBytes(const ModelSpec& spec, int64_t tokens, DType dtype) {
  return Scratch(spec, tokens, dtype, nullptr).bytes;
}

void BlockForward(const PassContext& pass, const SlabLayout& layout, const void* weights,
                  const void* x, void* saved_memory, void* remade_memory, void* y) {
  using enum TensorRole;
  const ModelSpec& spec = pass.spec;
  Block block(pass, layout, weights);
  const Saved saved(spec, pass.tokens, block.dtype(), saved_memory, remade_memory);

  block.AttentionNorm(x, saved);
  block.Linear(kQkv, kQkvBias, saved.attention_input, nullptr, saved.qkv);
  block.Rotate(saved.qkv, /*backward=*/false);
  pass.ops.Run(pass.stream, AttentionForward{.input = block.Attention(saved.qkv),
                                             .output = saved.attention,
                                             .log_sum_exp = saved.log_sum_exp});
  block.Linear(kAttentionOutput, kAttentionOutputBias, saved.attention, x, saved.middle);

  block.MlpNorm(saved);
  block.Linear(kMlpIn, kMlpInBias, saved.mlp_input, nullptr, saved.mlp_in);
  block.Activate(saved);
  if (y != nullptr) block.Linear(kMlpOut, kMlpOutBias, saved.activation, saved.middle, y);
}

void BlockRemake(const PassContext& pass, const SlabLayout& layout, const void* weights,
                 const void* x, const void* saved_memory, void* remade_memory) {
  Block block(pass, layout, weights);
  const Saved saved(pass.spec, pass.tokens, block.dtype(), saved_memory, remade_memory);
  block.AttentionNorm(x, saved);
  block.MlpNorm(saved);
  block.Activate(saved);
}

void BlockBackward(const PassContext& pass, const SlabLayout& layout, const void* weights,
                   const void* x, const void* saved_memory, const void* remade_memory,
                   void* scratch_memory, void* dx, const SlabGradient& gradient) {
  using enum TensorRole;
  const ModelSpec& spec = pass.spec;
  Block block(pass, layout, weights);
  const Saved saved(spec, pass.tokens, block.dtype(), saved_memory, remade_memory);
  const Scratch scratch(spec, pass.tokens, block.dtype(), scratch_memory);

  block.LinearGradient(kMlpOut, kMlpOutBias, gradient, dx, saved.activation, scratch.dactivation);
  pass.ops.Run(pass.stream, Activation{.kind = spec.activation,
                                       .gated = spec.gated_mlp,
                                       .tokens = pass.tokens,
                                       .width = spec.intermediate_size,
                                       .x = saved.mlp_in,
                                       .dy = scratch.dactivation,
                                       .dx = scratch.dmlp_in});
  block.LinearGradient(kMlpIn, kMlpInBias, gradient, scratch.dmlp_in, saved.mlp_input,
                       scratch.dnormed);
  block.NormGradient(kMlpNorm, kMlpNormBias, gradient, scratch.dnormed, saved.middle,
                     saved.mlp_mean, saved.mlp_rstd, dx);

  block.LinearGradient(kAttentionOutput, kAttentionOutputBias, gradient, dx, saved.attention,
                       scratch.dattention);
  pass.ops.Run(pass.stream, AttentionBackward{.input = block.Attention(saved.qkv),
                                              .output = saved.attention,
                                              .log_sum_exp = saved.log_sum_exp,
                                              .doutput = scratch.dattention,
                                              .dqkv = scratch.dqkv});
  block.Rotate(scratch.dqkv, /*backward=*/true);
  block.LinearGradient(kQkv, kQkvBias, gradient, scratch.dqkv, saved.attention_input,
                       scratch.dnormed);
  block.NormGradient(kAttentionNorm, kAttentionNormBias, gradient, scratch.dnormed, x,
                     saved.attention_mean, saved.attention_rstd, dx);
}

}  // namespace millrace
