// What a model is: the numbers and switches that one decoder block, driven by them, needs to be any
// family we know. A family is a row in a table (families.h) that says how a config.json becomes
// this.
#ifndef MILLRACE_ENGINE_MODEL_MODEL_SPEC_H_
#define MILLRACE_ENGINE_MODEL_MODEL_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/ops/activation_kind.h"
#include "engine/ops/rotary_table.h"

namespace millrace {

enum class NormKind : uint8_t { kRmsNorm, kLayerNorm };
enum class PositionKind : uint8_t { kLearned, kRotary };
// RMSNorm of queries and keys before they are rotated: of each head with one weight of head_dim, or
// of the whole projection.
enum class QueryKeyNorm : uint8_t { kNone, kPerHead, kWhole };

struct ModelSpec {
  std::string model_type;  // as in config.json: "llama", "gpt2"
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;  // divides num_heads
  int64_t head_dim = 0;
  int64_t intermediate_size = 0;
  int64_t max_positions = 0;  // longest sequence

  // Norms: before attention and MLP, after them (of what is added to the residual), or both.
  NormKind norm = NormKind::kRmsNorm;
  double norm_epsilon = 1e-5;
  bool norm_bias = false;
  bool norm_plus_one = false;  // 1 + weight stands for weight
  bool norm_before = true;
  bool norm_after = false;
  // y = x + attention(norm1(x)) + mlp(norm2(x)) instead of one after the other; norm_before alone.
  bool parallel_residual = false;

  // The embedding's rows are multiplied by it.
  double embedding_scale = 1.0;
  PositionKind position = PositionKind::kRotary;
  // Rotary only. The first elements of each head turn; even.
  int64_t rotary_width = 0;
  RotaryEmbedding rotary;
  // Of the layers with a window, where they have another.
  std::optional<RotaryEmbedding> window_rotary;

  double attention_scale = 0.0;           // of scores; usually head_dim^-½
  bool attention_scale_by_layer = false;  // divided by 1 + the layer's index, too
  double attention_softcap = 0.0;         // of scores; 0: none
  QueryKeyNorm query_key_norm = QueryKeyNorm::kNone;
  // Layers with windowed[layer] see the last `window` tokens, their own included. 0 and empty:
  // none.
  int64_t window = 0;
  std::vector<bool> windowed;

  bool attention_bias = false;         // on q, k, v
  bool attention_output_bias = false;  // on the output projection
  // down(f(gate(x)) · up(x)) when gated, else down(f(up(x))).
  ActivationKind activation = ActivationKind::kSilu;
  bool gated_mlp = true;
  bool mlp_bias = false;

  bool tied_embeddings = false;
  double logit_softcap = 0.0;  // 0: none

  // Standard deviation of initial weights.
  double initializer_range = 0.02;
  // Divides the deviation of projections into the residual stream by sqrt(2·num_layers), as GPT-2.
  bool scaled_residual_init = false;

  bool operator==(const ModelSpec&) const = default;

  int64_t query_size() const { return num_heads * head_dim; }
  int64_t kv_size() const { return num_kv_heads * head_dim; }
  // Output rows of the fused projection: q, then k, then v.
  int64_t qkv_size() const { return query_size() + 2 * kv_size(); }
  // Output rows of the first MLP projection: gate then up, or up alone.
  int64_t mlp_in_size() const { return gated_mlp ? 2 * intermediate_size : intermediate_size; }

  // Of layer 0 to num_layers - 1.
  bool HasWindow(int64_t layer) const { return !windowed.empty() && windowed[layer]; }
  int64_t WindowOf(int64_t layer) const { return HasWindow(layer) ? window : 0; }
  // Whether the layer rotates by window_rotary.
  bool UsesWindowRotary(int64_t layer) const {
    return window_rotary.has_value() && HasWindow(layer);
  }
  double AttentionScaleOf(int64_t layer) const {
    return attention_scale_by_layer ? attention_scale / static_cast<double>(layer + 1)
                                    : attention_scale;
  }
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_MODEL_SPEC_H_
