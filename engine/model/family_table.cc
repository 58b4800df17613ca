#include "engine/model/family_table.h"

#include <cmath>

namespace millrace {
namespace {

using nlohmann::json;

constexpr int64_t kMostVocabulary = 1 << 24;
constexpr int64_t kMostHidden = 1 << 18;
constexpr int64_t kMostIntermediate = 1 << 22;
constexpr int64_t kMostLayers = 10'000;
constexpr int64_t kMostHeads = 1 << 14;
constexpr int64_t kMostHeadDim = 1 << 12;
constexpr int64_t kMostPositions = 1 << 24;
constexpr double kMostSoftcap = 1e9;

// The class's defaults, in the order of the keys in Sized().
struct Sizes {
  int64_t vocab_size, hidden_size, intermediate_size, layers, heads;
  int64_t kv_heads;  // 0: as many as heads
  int64_t head_dim;  // 0: hidden_size / heads
  int64_t positions;
  double norm_epsilon = 1e-6;
};

// What llama and all that followed it have in common.
FamilyKeys LlamaLike(absl::string_view model_type, absl::string_view architecture,
                     const Sizes& sizes) {
  FamilyKeys family;
  family.model_type = model_type;
  family.architecture = architecture;
  family.base.model_type = std::string(model_type);
  family.wholes = {
      {"vocab_size", "", &ModelSpec::vocab_size, sizes.vocab_size, kMostVocabulary},
      {"hidden_size", "", &ModelSpec::hidden_size, sizes.hidden_size, kMostHidden},
      {"intermediate_size", "", &ModelSpec::intermediate_size, sizes.intermediate_size,
       kMostIntermediate},
      {"num_hidden_layers", "", &ModelSpec::num_layers, sizes.layers, kMostLayers},
      {"num_attention_heads", "", &ModelSpec::num_heads, sizes.heads, kMostHeads},
      {"num_key_value_heads", "", &ModelSpec::num_kv_heads, sizes.kv_heads, kMostHeads,
       Null::kZero},
      {"head_dim", "", &ModelSpec::head_dim, sizes.head_dim, kMostHeadDim,
       sizes.head_dim == 0 ? Null::kZero : Null::kAbsent},
      {"max_position_embeddings", "", &ModelSpec::max_positions, sizes.positions, kMostPositions},
  };
  family.reals = {
      {"rms_norm_eps", &ModelSpec::norm_epsilon, sizes.norm_epsilon, 1e-30, 1.0},
      {"initializer_range", &ModelSpec::initializer_range, 0.02, 0.0, 10.0},
  };
  family.switches = {{"tie_word_embeddings", {&ModelSpec::tied_embeddings}, false}};
  family.dropouts = {{"attention_dropout"}};
  return family;
}

const SwitchKey& AttentionBias() {
  static const auto* key = new SwitchKey{
      "attention_bias", {&ModelSpec::attention_bias, &ModelSpec::attention_output_bias}, false};
  return *key;
}

FamilyKeys Llama() {
  FamilyKeys family = LlamaLike("llama", "LlamaForCausalLM",
                                {.vocab_size = 32000,
                                 .hidden_size = 4096,
                                 .intermediate_size = 11008,
                                 .layers = 32,
                                 .heads = 32,
                                 .kv_heads = 0,
                                 .head_dim = 0,
                                 .positions = 2048});
  family.switches.push_back(AttentionBias());
  family.switches.push_back({"mlp_bias", {&ModelSpec::mlp_bias}, false});
  family.fixed = {{"rope_interleaved", {false}, "interleaved rotary embedding"},
                  {"sliding_window", {}, "windowed attention"}};
  return family;
}

FamilyKeys Mistral() {
  FamilyKeys family = LlamaLike("mistral", "MistralForCausalLM",
                                {.vocab_size = 32000,
                                 .hidden_size = 4096,
                                 .intermediate_size = 14336,
                                 .layers = 32,
                                 .heads = 32,
                                 .kv_heads = 8,
                                 .head_dim = 0,
                                 .positions = 131072});
  family.window = {WindowRule::kEveryLayer, 4096};
  family.fixed = {{"attention_bias", {false}, "biases"}, {"mlp_bias", {false}, "biases"}};
  return family;
}

FamilyKeys Qwen2() {
  FamilyKeys family = LlamaLike("qwen2", "Qwen2ForCausalLM",
                                {.vocab_size = 151936,
                                 .hidden_size = 4096,
                                 .intermediate_size = 22016,
                                 .layers = 32,
                                 .heads = 32,
                                 .kv_heads = 32,
                                 .head_dim = 0,
                                 .positions = 32768});
  family.base.attention_bias = true;
  family.window = {WindowRule::kLastLayers, 4096};
  family.fixed = {{"use_mrope", {false}, "rotary embedding of several axes"}};
  return family;
}

FamilyKeys Qwen3() {
  FamilyKeys family = LlamaLike("qwen3", "Qwen3ForCausalLM",
                                {.vocab_size = 151936,
                                 .hidden_size = 4096,
                                 .intermediate_size = 22016,
                                 .layers = 32,
                                 .heads = 32,
                                 .kv_heads = 32,
                                 .head_dim = 128,
                                 .positions = 32768});
  family.base.query_key_norm = QueryKeyNorm::kPerHead;
  family.switches.push_back(AttentionBias());
  family.window = {WindowRule::kLastLayers, 4096};
  return family;
}

// Scores are divided by the square root of a number of its own, embeddings multiplied by that of
// their width.
void ReadGemma(ConfigReader& reader, ModelSpec& spec) {
  constexpr int64_t kFallback = 256, kMost = 1 << 24;
  const json* value = reader.Find("query_pre_attn_scalar");
  const int64_t scalar =
      value ? reader.Whole(*value, "query_pre_attn_scalar", 1, kMost) : kFallback;
  spec.attention_scale = 1.0 / std::sqrt(static_cast<double>(scalar));
  spec.embedding_scale = std::sqrt(static_cast<double>(spec.hidden_size));
}

void WriteGemma(const ModelSpec& spec, json& config) {
  config["query_pre_attn_scalar"] =
      std::llround(1.0 / (spec.attention_scale * spec.attention_scale));
}

FamilyKeys Gemma(absl::string_view model_type, absl::string_view architecture, const Sizes& sizes) {
  FamilyKeys family = LlamaLike(model_type, architecture, sizes);
  family.base.norm_plus_one = true;
  family.base.norm_after = true;
  family.switches = {{"tie_word_embeddings", {&ModelSpec::tied_embeddings}, true}, AttentionBias()};
  family.activation = {"hidden_activation", "gelu_pytorch_tanh", "hidden_act"};
  family.fixed = {{"use_bidirectional_attention", {false}, "attention to later tokens"}};
  family.own = {"query_pre_attn_scalar"};
  family.read_own = &ReadGemma;
  family.write_own = &WriteGemma;
  return family;
}

RealKey FinalSoftcap(double fallback) {
  return {"final_logit_softcapping",
          &ModelSpec::logit_softcap,
          fallback,
          1e-3,
          kMostSoftcap,
          Null::kZero};
}

FamilyKeys Gemma2() {
  FamilyKeys family = Gemma("gemma2", "Gemma2ForCausalLM",
                            {.vocab_size = 256000,
                             .hidden_size = 2304,
                             .intermediate_size = 9216,
                             .layers = 26,
                             .heads = 8,
                             .kv_heads = 4,
                             .head_dim = 256,
                             .positions = 8192});
  family.reals.push_back(FinalSoftcap(30.0));
  family.reals.push_back({"attn_logit_softcapping", &ModelSpec::attention_softcap, 50.0, 1e-3,
                          kMostSoftcap, Null::kZero});
  family.window = {WindowRule::kAlternating, 4096};
  return family;
}

FamilyKeys Gemma3() {
  FamilyKeys family = Gemma("gemma3_text", "Gemma3ForCausalLM",
                            {.vocab_size = 262208,
                             .hidden_size = 2304,
                             .intermediate_size = 9216,
                             .layers = 26,
                             .heads = 8,
                             .kv_heads = 4,
                             .head_dim = 256,
                             .positions = 131072});
  family.base.query_key_norm = QueryKeyNorm::kPerHead;
  family.reals.push_back(FinalSoftcap(0.0));
  family.fixed.push_back({"attn_logit_softcapping", {}, "a soft cap that no gemma3 model applies"});
  family.window = {WindowRule::kPattern, 4096};
  family.rope = {.theta = 1e6,
                 .scalings = {RotaryScaling::kLinear, RotaryScaling::kYarn, RotaryScaling::kLlama3,
                              RotaryScaling::kLongRope},
                 .by_layer_type = true};
  return family;
}

FamilyKeys Phi3() {
  FamilyKeys family = LlamaLike("phi3", "Phi3ForCausalLM",
                                {.vocab_size = 32064,
                                 .hidden_size = 3072,
                                 .intermediate_size = 8192,
                                 .layers = 32,
                                 .heads = 32,
                                 .kv_heads = 0,
                                 .head_dim = 0,
                                 .positions = 4096,
                                 .norm_epsilon = 1e-5});
  family.window = {WindowRule::kEveryLayer, 0};
  family.rope = {.may_be_partial = true, .scalings = {RotaryScaling::kLongRope}, .as_phi3 = true};
  family.dropouts = {{"attention_dropout"}, {"resid_pdrop"}, {"embd_pdrop"}};
  family.fixed = {{"attention_bias", {false}, "biases"},
                  {"mlp_bias", {false}, "biases"},
                  {"lm_head_bias", {false}, "biases"},
                  {"full_attn_mod", {1}, "windows in some layers"},
                  {"interpolate_factor", {1}, "interpolated positions"}};
  return family;
}

FamilyKeys Olmo2() {
  FamilyKeys family = LlamaLike("olmo2", "Olmo2ForCausalLM",
                                {.vocab_size = 50304,
                                 .hidden_size = 4096,
                                 .intermediate_size = 11008,
                                 .layers = 32,
                                 .heads = 32,
                                 .kv_heads = 0,
                                 .head_dim = 0,
                                 .positions = 2048,
                                 .norm_epsilon = 1e-5});
  family.base.norm_before = false;
  family.base.norm_after = true;
  family.base.query_key_norm = QueryKeyNorm::kWhole;
  family.switches.push_back(AttentionBias());
  return family;
}

FamilyKeys GptNeox() {
  FamilyKeys family;
  family.model_type = "gpt_neox";
  family.architecture = "GPTNeoXForCausalLM";
  ModelSpec& base = family.base;
  base.model_type = "gpt_neox";
  base.norm = NormKind::kLayerNorm;
  base.norm_bias = true;
  base.gated_mlp = false;
  base.mlp_bias = true;
  family.wholes = {
      {"vocab_size", "", &ModelSpec::vocab_size, 50432, kMostVocabulary},
      {"hidden_size", "", &ModelSpec::hidden_size, 6144, kMostHidden},
      {"intermediate_size", "", &ModelSpec::intermediate_size, 24576, kMostIntermediate},
      {"num_hidden_layers", "", &ModelSpec::num_layers, 44, kMostLayers},
      {"num_attention_heads", "", &ModelSpec::num_heads, 64, kMostHeads},
      {"max_position_embeddings", "", &ModelSpec::max_positions, 2048, kMostPositions},
  };
  family.reals = {
      {"layer_norm_eps", &ModelSpec::norm_epsilon, 1e-5, 1e-30, 1.0},
      {"initializer_range", &ModelSpec::initializer_range, 0.02, 0.0, 10.0},
  };
  family.switches = {
      {"tie_word_embeddings", {&ModelSpec::tied_embeddings}, false},
      {"use_parallel_residual", {&ModelSpec::parallel_residual}, true},
      {"attention_bias", {&ModelSpec::attention_bias, &ModelSpec::attention_output_bias}, true},
  };
  family.activation = {"hidden_act", "gelu"};
  family.rope = {.theta_key = "rotary_emb_base",
                 .partial_key = "rotary_pct",
                 .may_be_partial = true,
                 .partial = 0.25};
  family.dropouts = {{"attention_dropout"},
                     {"hidden_dropout"},
                     {"attention_probs_dropout_prob"},
                     {"hidden_dropout_prob"}};
  family.ignored = {"classifier_dropout"};
  return family;
}

// Scores that are not divided by the square root of a head's width.
void ReadGpt2(ConfigReader& reader, ModelSpec& spec) {
  if (!reader.Switch("scale_attn_weights", true)) spec.attention_scale = 1.0;
}

void WriteGpt2(const ModelSpec& spec, json& config) {
  config["scale_attn_weights"] = spec.head_dim == 1 || spec.attention_scale != 1.0;
}

FamilyKeys Gpt2() {
  FamilyKeys family;
  family.model_type = "gpt2";
  family.architecture = "GPT2LMHeadModel";
  ModelSpec& base = family.base;
  base.model_type = "gpt2";
  base.norm = NormKind::kLayerNorm;
  base.norm_bias = true;
  base.position = PositionKind::kLearned;
  base.attention_bias = true;
  base.attention_output_bias = true;
  base.gated_mlp = false;
  base.mlp_bias = true;
  base.scaled_residual_init = true;
  family.wholes = {
      {"vocab_size", "", &ModelSpec::vocab_size, 50257, kMostVocabulary},
      {"n_embd", "hidden_size", &ModelSpec::hidden_size, 768, kMostHidden},
      {"n_inner", "", &ModelSpec::intermediate_size, 0, kMostIntermediate},
      {"n_layer", "num_hidden_layers", &ModelSpec::num_layers, 12, kMostLayers},
      {"n_head", "num_attention_heads", &ModelSpec::num_heads, 12, kMostHeads},
      {"n_positions", "max_position_embeddings", &ModelSpec::max_positions, 1024, kMostPositions},
  };
  family.reals = {
      {"layer_norm_epsilon", &ModelSpec::norm_epsilon, 1e-5, 1e-30, 1.0},
      {"initializer_range", &ModelSpec::initializer_range, 0.02, 0.0, 10.0},
  };
  family.switches = {
      {"tie_word_embeddings", {&ModelSpec::tied_embeddings}, true},
      {"scale_attn_by_inverse_layer_idx", {&ModelSpec::attention_scale_by_layer}, false},
  };
  family.activation = {"activation_function", "gelu_new"};
  family.dropouts = {{"resid_pdrop", true}, {"embd_pdrop", true}, {"attn_pdrop", true}};
  // n_ctx is what older configs say beside n_positions. reorder_and_upcast_attn is about rounding.
  family.ignored = {"n_ctx",
                    "reorder_and_upcast_attn",
                    "summary_activation",
                    "summary_first_dropout",
                    "summary_proj_to_labels",
                    "summary_type",
                    "summary_use_proj"};
  family.own = {"scale_attn_weights"};
  family.read_own = &ReadGpt2;
  family.write_own = &WriteGpt2;
  return family;
}

// Of every family: refused unless off.
const std::vector<FixedKey>& CommonFixedKeys() {
  static const auto* keys = new std::vector<FixedKey>{
      {"add_cross_attention", {false}, "cross-attention"},
      {"cross_attention_hidden_size", {}, "cross-attention"},
      {"is_encoder_decoder", {false}, "an encoder"},
      {"per_layer_config", {json::object()}, "layers that differ"},
      {"pruned_heads", {json::object()}, "pruned heads"},
      {"quantization_config", {}, "quantized weights"},
      {"tie_encoder_decoder", {false}, "an encoder"},
  };
  return *keys;
}

}  // namespace

const std::vector<FamilyKeys>& FamilyTable() {
  static const auto* families = [] {
    auto* all = new std::vector<FamilyKeys>{Llama(), Gpt2(),   GptNeox(), Mistral(), Qwen2(),
                                            Qwen3(), Gemma2(), Gemma3(),  Phi3(),    Olmo2()};
    for (FamilyKeys& family : *all) {
      family.fixed.insert(family.fixed.end(), CommonFixedKeys().begin(), CommonFixedKeys().end());
    }
    return all;
  }();
  return *families;
}

}  // namespace millrace
