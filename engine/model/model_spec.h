// What a model is: the numbers and switches that one decoder block, driven by them, needs to be any
// family we know. A family is a row in a table (families.h) that says how a config.json becomes
// this.
#ifndef MILLRACE_ENGINE_MODEL_MODEL_SPEC_H_
#define MILLRACE_ENGINE_MODEL_MODEL_SPEC_H_

#include <cstdint>
#include <string>

namespace millrace {

enum class NormKind : uint8_t { kRmsNorm, kLayerNorm };
enum class PositionKind : uint8_t { kLearned, kRotary };
// kSwiGlu: down(silu(gate(x)) · up(x)). kGeluTanh: down(gelu(up(x))), the tanh approximation.
enum class MlpKind : uint8_t { kSwiGlu, kGeluTanh };

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

  NormKind norm = NormKind::kRmsNorm;
  double norm_epsilon = 1e-5;
  bool norm_bias = false;

  PositionKind position = PositionKind::kRotary;
  double rotary_theta = 10000.0;  // rotary only

  bool attention_bias = false;         // on q, k, v
  bool attention_output_bias = false;  // on the output projection
  MlpKind mlp = MlpKind::kSwiGlu;
  bool mlp_bias = false;
  bool tied_embeddings = false;

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
  int64_t mlp_in_size() const {
    return mlp == MlpKind::kSwiGlu ? 2 * intermediate_size : intermediate_size;
  }
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_MODEL_SPEC_H_
