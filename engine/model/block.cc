#include "engine/model/block.h"

#include <array>

#include "engine/model/block_memory.h"

namespace millrace {
namespace {

// A norm of the block: its weights' roles, and where its statistics are.
struct NormOf {
  TensorRole weight, bias;
  const NormStatistics& statistics;
};

class Block {
 public:
  Block(const PassContext& pass, const SlabLayout& layout, const void* weights, const void* x,
        const BlockSaved& saved)
      : pass_(pass),
        spec_(pass.spec),
        layout_(layout),
        layer_(layout.index - 1),
        weights_(weights),
        x_(x),
        saved_(saved),
        dtype_(pass.ops.compute_dtype()) {}

  void Forward(void* y) {
    using enum TensorRole;
    AttentionNorm();
    Linear(kQkv, kQkvBias, attention_input(), nullptr, saved_.qkv);
    PlaceQueriesAndKeys();
    if (pass_.cache != nullptr) AddToCache();
    pass_.ops.Run(pass_.stream, AttentionForward{.input = Attention(),
                                                 .output = saved_.attention,
                                                 .log_sum_exp = saved_.log_sum_exp});
    if (spec_.parallel_residual) {
      if (y != nullptr) Linear(kAttentionOutput, kAttentionOutputBias, saved_.attention, x_, y);
    } else if (spec_.norm_after) {
      Linear(kAttentionOutput, kAttentionOutputBias, saved_.attention, nullptr,
             saved_.attention_output);
      AttentionPostNorm();
    } else {
      Linear(kAttentionOutput, kAttentionOutputBias, saved_.attention, x_, saved_.middle);
    }

    MlpNorm();
    Linear(kMlpIn, kMlpInBias, mlp_input(), nullptr, saved_.mlp_in);
    Activate();
    if (spec_.norm_after) {
      Linear(kMlpOut, kMlpOutBias, saved_.activation, nullptr, saved_.mlp_output);
      MlpPostNorm(y);
    } else if (y != nullptr) {
      Linear(kMlpOut, kMlpOutBias, saved_.activation, spec_.parallel_residual ? y : saved_.middle,
             y);
    }
  }

  void Remake() {
    AttentionNorm();
    if (spec_.query_key_norm != QueryKeyNorm::kNone) PlaceQueriesAndKeys();
    if (spec_.norm_after) {
      AttentionPostNorm();
      MlpPostNorm(nullptr);
    }
    MlpNorm();
    Activate();
  }

  void Backward(const BlockScratch& scratch, void* dx, const SlabGradient& gradient) {
    using enum TensorRole;
    // dx is the gradient of y, and of h on its way there.
    const void* doutput = dx;
    if (spec_.norm_after) {
      NormGradient(mlp_post_norm(), gradient, dx, saved_.mlp_output, nullptr, scratch.doutput);
      doutput = scratch.doutput;
    }
    LinearGradient(kMlpOut, kMlpOutBias, gradient, doutput, saved_.activation, scratch.dactivation);
    Activation activation = ActivationOf();
    activation.dy = scratch.dactivation;
    activation.dx = scratch.dmlp_in;
    pass_.ops.Run(pass_.stream, activation);
    void* const dmlp_input = spec_.parallel_residual ? scratch.dmlp_input : scratch.dnormed;
    LinearGradient(kMlpIn, kMlpInBias, gradient, scratch.dmlp_in, mlp_input(), dmlp_input);
    if (!spec_.parallel_residual) {
      InputGradient(mlp_norm(), gradient, dmlp_input, saved_.middle, dx);
    }

    if (spec_.norm_after) {
      NormGradient(attention_post_norm(), gradient, dx, saved_.attention_output, nullptr,
                   scratch.doutput);
    }
    LinearGradient(kAttentionOutput, kAttentionOutputBias, gradient, doutput, saved_.attention,
                   scratch.dattention);
    pass_.ops.Run(pass_.stream, AttentionBackward{.input = Attention(),
                                                  .output = saved_.attention,
                                                  .log_sum_exp = saved_.log_sum_exp,
                                                  .doutput = scratch.dattention,
                                                  .dqkv = scratch.dqkv});
    Rotate(scratch.dqkv, spec_.qkv_size(), /*backward=*/true);
    QueryKeyNormGradient(gradient, scratch.dqkv);
    LinearGradient(kQkv, kQkvBias, gradient, scratch.dqkv, attention_input(), scratch.dnormed);
    InputGradient(attention_norm(), gradient, scratch.dnormed, x_, dx);
    if (spec_.parallel_residual) InputGradient(mlp_norm(), gradient, dmlp_input, x_, dx);
  }

 private:
  // --- Pieces that forward and remaking share

  void AttentionNorm() {
    if (spec_.norm_before) Norm(attention_norm(), x_, nullptr, saved_.attention_input);
  }
  void MlpNorm() {
    if (spec_.norm_before) Norm(mlp_norm(), before_mlp(), nullptr, saved_.mlp_input);
  }
  void AttentionPostNorm() {
    Norm(attention_post_norm(), saved_.attention_output, x_, saved_.middle);
  }
  void MlpPostNorm(void* y) { Norm(mlp_post_norm(), saved_.mlp_output, saved_.middle, y); }
  void Activate() {
    Activation activation = ActivationOf();
    activation.y = saved_.activation;
    pass_.ops.Run(pass_.stream, activation);
  }
  // Queries and keys as attention reads them.
  void PlaceQueriesAndKeys() {
    if (spec_.query_key_norm != QueryKeyNorm::kNone) {
      for (const HeadNorm& part : HeadNorms()) {
        pass_.ops.Run(pass_.stream, NormForward{.layer_norm = false,
                                                .plus_one = spec_.norm_plus_one,
                                                .tokens = pass_.tokens,
                                                .width = part.width,
                                                .groups = part.groups,
                                                .epsilon = spec_.norm_epsilon,
                                                .x = Column(saved_.qkv, part.column),
                                                .x_stride = spec_.qkv_size(),
                                                .weight = Weight(part.weight),
                                                .y = Column(queries(), part.column),
                                                .y_stride = query_stride(),
                                                .rstd = part.rstd});
      }
    }
    Rotate(queries(), query_stride(), /*backward=*/false);
  }

  // --- Where things are

  const void* attention_input() const { return spec_.norm_before ? saved_.attention_input : x_; }
  const void* mlp_input() const { return spec_.norm_before ? saved_.mlp_input : before_mlp(); }
  const void* before_mlp() const { return spec_.parallel_residual ? x_ : saved_.middle; }
  // Queries and after them keys; elements of a row.
  void* queries() const {
    return saved_.queries_keys != nullptr ? saved_.queries_keys : saved_.qkv;
  }
  int64_t query_stride() const {
    return saved_.queries_keys != nullptr ? spec_.query_size() + spec_.kv_size() : spec_.qkv_size();
  }
  void* values() const { return Column(saved_.qkv, spec_.query_size() + spec_.kv_size()); }

  NormOf attention_norm() const {
    return {TensorRole::kAttentionNorm, TensorRole::kAttentionNormBias, saved_.attention_norm};
  }
  NormOf mlp_norm() const {
    return {TensorRole::kMlpNorm, TensorRole::kMlpNormBias, saved_.mlp_norm};
  }
  NormOf attention_post_norm() const {
    return {TensorRole::kAttentionPostNorm, TensorRole::kAttentionPostNormBias,
            saved_.attention_post_norm};
  }
  NormOf mlp_post_norm() const {
    return {TensorRole::kMlpPostNorm, TensorRole::kMlpPostNormBias, saved_.mlp_post_norm};
  }

  // Query and key norms, on columns of a matrix of queries and keys.
  struct HeadNorm {
    TensorRole weight;
    int64_t column, width, groups;
    float* rstd;
  };
  std::array<HeadNorm, 2> HeadNorms() const {
    const bool heads = spec_.query_key_norm == QueryKeyNorm::kPerHead;
    return {{{.weight = TensorRole::kQueryNorm,
              .column = 0,
              .width = heads ? spec_.head_dim : spec_.query_size(),
              .groups = heads ? spec_.num_heads : 1,
              .rstd = saved_.query_norm.rstd},
             {.weight = TensorRole::kKeyNorm,
              .column = spec_.query_size(),
              .width = heads ? spec_.head_dim : spec_.kv_size(),
              .groups = heads ? spec_.num_kv_heads : 1,
              .rstd = saved_.key_norm.rstd}}};
  }

  const void* Weight(TensorRole role) const { return BindTensor(layout_, weights_, dtype_, role); }
  void* Column(void* matrix, int64_t column) const {
    return static_cast<std::byte*>(matrix) + static_cast<size_t>(column) * SizeOf(dtype_);
  }

  // --- Ops

  void Norm(const NormOf& norm, const void* x, const void* residual, void* y) {
    pass_.ops.Run(pass_.stream, NormForward{.layer_norm = spec_.norm == NormKind::kLayerNorm,
                                            .plus_one = spec_.norm_plus_one,
                                            .tokens = pass_.tokens,
                                            .width = spec_.hidden_size,
                                            .epsilon = spec_.norm_epsilon,
                                            .x = x,
                                            .weight = Weight(norm.weight),
                                            .bias = Weight(norm.bias),
                                            .residual = residual,
                                            .y = y,
                                            .mean = norm.statistics.mean,
                                            .rstd = norm.statistics.rstd});
  }

  void NormGradient(const NormOf& norm, const SlabGradient& gradient, const void* dy, const void* x,
                    const void* residual, void* dx) {
    pass_.ops.Run(pass_.stream, NormBackward{.layer_norm = spec_.norm == NormKind::kLayerNorm,
                                             .plus_one = spec_.norm_plus_one,
                                             .tokens = pass_.tokens,
                                             .width = spec_.hidden_size,
                                             .dy = dy,
                                             .x = x,
                                             .weight = Weight(norm.weight),
                                             .mean = norm.statistics.mean,
                                             .rstd = norm.statistics.rstd,
                                             .residual = residual,
                                             .dx = dx,
                                             .dweight = gradient.Of(layout_, norm.weight),
                                             .dbias = gradient.Of(layout_, norm.bias)});
  }

  // Adds to dx the gradient through a half's input, norm(x) or x itself.
  void InputGradient(const NormOf& norm, const SlabGradient& gradient, const void* dinput,
                     const void* x, void* dx) {
    if (spec_.norm_before) return NormGradient(norm, gradient, dinput, x, dx, dx);
    pass_.ops.Run(pass_.stream,
                  Add{.count = pass_.tokens * spec_.hidden_size, .x = dinput, .y = dx});
  }

  void QueryKeyNormGradient(const SlabGradient& gradient, void* dqkv) {
    if (spec_.query_key_norm == QueryKeyNorm::kNone) return;
    for (const HeadNorm& part : HeadNorms()) {
      void* const columns = Column(dqkv, part.column);
      pass_.ops.Run(pass_.stream, NormBackward{.layer_norm = false,
                                               .plus_one = spec_.norm_plus_one,
                                               .tokens = pass_.tokens,
                                               .width = part.width,
                                               .groups = part.groups,
                                               .dy = columns,
                                               .dy_stride = spec_.qkv_size(),
                                               .x = Column(saved_.qkv, part.column),
                                               .x_stride = spec_.qkv_size(),
                                               .weight = Weight(part.weight),
                                               .rstd = part.rstd,
                                               .dx = columns,
                                               .dx_stride = spec_.qkv_size(),
                                               .dweight = gradient.Of(layout_, part.weight)});
    }
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

  // Queries and keys at the beginning of each row of `matrix`.
  void Rotate(void* matrix, int64_t stride, bool backward) {
    if (spec_.position != PositionKind::kRotary) return;
    pass_.ops.Run(pass_.stream,
                  Rotary{.tokens = pass_.tokens,
                         .heads = spec_.num_heads + spec_.num_kv_heads,
                         .head_dim = spec_.head_dim,
                         .rotary_width = spec_.rotary_width,
                         .row_stride = stride,
                         .positions = pass_.positions,
                         .cos_sin_table = spec_.UsesWindowRotary(layer_) ? pass_.window_rotary_table
                                                                         : pass_.rotary_table,
                         .x = matrix,
                         .backward = backward});
  }

  Activation ActivationOf() const {
    return {.kind = spec_.activation,
            .gated = spec_.gated_mlp,
            .tokens = pass_.tokens,
            .width = spec_.intermediate_size,
            .x = saved_.mlp_in};
  }

  AttentionInput Attention() const {
    AttentionInput input = {.tokens = pass_.tokens,
                            .num_heads = spec_.num_heads,
                            .num_kv_heads = spec_.num_kv_heads,
                            .head_dim = spec_.head_dim,
                            .boundaries = pass_.boundaries,
                            .scale = static_cast<float>(spec_.AttentionScaleOf(layer_)),
                            .softcap = static_cast<float>(spec_.attention_softcap),
                            .window = spec_.WindowOf(layer_),
                            .q = queries(),
                            .k = Column(queries(), spec_.query_size()),
                            .v = values(),
                            .q_stride = query_stride(),
                            .k_stride = query_stride(),
                            .v_stride = spec_.qkv_size()};
    if (pass_.cache != nullptr) {
      input.key_begin = pass_.cache->key_begin;
      input.key_count = pass_.cache->key_count;
      input.k = CacheRow(pass_.cache->keys, 0);
      input.v = CacheRow(pass_.cache->values, 0);
      input.k_stride = input.v_stride = spec_.kv_size();
    }
    return input;
  }

  void* CacheRow(void* cache, int64_t row) const {
    return Column(cache, (layer_ * pass_.cache->rows + row) * spec_.kv_size());
  }

  void AddToCache() {
    const KeyValueCache& cache = *pass_.cache;
    for (size_t i = 0; i < cache.key_count.size(); ++i) {
      const int64_t token = pass_.boundaries[i], count = pass_.boundaries[i + 1] - token;
      const int64_t row = cache.key_begin[i] + cache.key_count[i] - count;
      const auto copy = [&](void* source, int64_t stride, void* target) {
        pass_.ops.Run(pass_.stream, CopyRows{.rows = count,
                                             .width = spec_.kv_size(),
                                             .source = Column(source, token * stride),
                                             .source_stride = stride,
                                             .target = CacheRow(target, row),
                                             .target_stride = spec_.kv_size()});
      };
      copy(Column(queries(), spec_.query_size()), query_stride(), cache.keys);
      copy(values(), spec_.qkv_size(), cache.values);
    }
  }

  const PassContext& pass_;
  const ModelSpec& spec_;
  const SlabLayout& layout_;
  const int64_t layer_;
  const void* weights_;
  const void* x_;
  const BlockSaved& saved_;
  const DType dtype_;
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
  return BlockSaved(spec, tokens, dtype, nullptr, nullptr).bytes;
}

size_t BlockRemadeBytes(const ModelSpec& spec, int64_t tokens, DType dtype) {
  return BlockSaved(spec, tokens, dtype, nullptr, nullptr).remade_bytes;
}

size_t BlockScratchBytes(const ModelSpec& spec, int64_t tokens, DType dtype) {
  return BlockScratch(spec, tokens, dtype, nullptr).bytes;
}

void BlockForward(const PassContext& pass, const SlabLayout& layout, const void* weights,
                  const void* x, void* saved_memory, void* remade_memory, void* y) {
  const BlockSaved saved(pass.spec, pass.tokens, pass.ops.compute_dtype(), saved_memory,
                         remade_memory);
  Block(pass, layout, weights, x, saved).Forward(y);
}

void BlockRemake(const PassContext& pass, const SlabLayout& layout, const void* weights,
                 const void* x, const void* saved_memory, void* remade_memory) {
  const BlockSaved saved(pass.spec, pass.tokens, pass.ops.compute_dtype(), saved_memory,
                         remade_memory);
  Block(pass, layout, weights, x, saved).Remake();
}

void BlockBackward(const PassContext& pass, const SlabLayout& layout, const void* weights,
                   const void* x, const void* saved_memory, const void* remade_memory,
                   void* scratch_memory, void* dx, const SlabGradient& gradient) {
  const DType dtype = pass.ops.compute_dtype();
  const BlockSaved saved(pass.spec, pass.tokens, dtype, saved_memory, remade_memory);
  const BlockScratch scratch(pass.spec, pass.tokens, dtype, scratch_memory);
  Block(pass, layout, weights, x, saved).Backward(scratch, dx, gradient);
}

}  // namespace millrace
