#include "engine/model/gguf_architectures.h"

namespace millrace {
namespace {

using nlohmann::json;

std::vector<GgufKey> operator+(std::vector<GgufKey> a, const std::vector<GgufKey>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

const std::vector<GgufArchitecture>& GgufArchitectureTable() {
  static const auto* architectures = [] {
    constexpr GgufNeed kOptional = GgufNeed::kOptional;
    const std::vector<GgufKey> wholes = {
        {"block_count", "num_hidden_layers"},
        {"context_length", "max_position_embeddings"},
        {"embedding_length", "hidden_size"},
        {"feed_forward_length", "intermediate_size"},
        {"attention.head_count", "num_attention_heads"},
        {"attention.head_count_kv", "num_key_value_heads", kOptional},
        {"attention.key_length", "head_dim", kOptional},
    };
    const std::vector<GgufKey> window = {{"attention.sliding_window", "sliding_window", kOptional}};
    const std::vector<GgufKey> reals = {
        {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
        {"rope.freq_base", "rope_theta", kOptional},
    };
    const std::vector<GgufKey> caps = {
        {"attn_logit_softcapping", "attn_logit_softcapping", kOptional},
        {"final_logit_softcapping", "final_logit_softcapping", kOptional},
    };
    const json silu = {{"hidden_act", "silu"}};
    const json gelu = {{"hidden_activation", "gelu_pytorch_tanh"}};
    const json qwen = {{"hidden_act", "silu"}, {"use_sliding_window", false}};
    return new std::vector<GgufArchitecture>{
        // A llama file with a window is a Mistral model.
        {"llama",
         "llama",
         wholes + window,
         reals,
         silu,
         {{"attention_bias", "blk.0.attn_q.bias"}, {"mlp_bias", "blk.0.ffn_up.bias"}}},
        {"qwen2", "qwen2", wholes, reals, qwen, {}},
        {"qwen3", "qwen3", wholes, reals, qwen, {{"attention_bias", "blk.0.attn_q.bias"}}},
        {"gemma2", "gemma2", wholes + window, reals + caps, gelu, {}},
        {"gemma3",
         "gemma3_text",
         wholes + window,
         reals + caps +
             std::vector<GgufKey>{{"rope.freq_base_swa", "rope_local_base_freq", kOptional}},
         gelu,
         {}},
        {"phi3", "phi3", wholes + window, reals, silu, {}},
        {"gpt2",
         "gpt2",
         {{"block_count", "n_layer"},
          {"context_length", "n_positions"},
          {"embedding_length", "n_embd"},
          {"feed_forward_length", "n_inner", kOptional},
          {"attention.head_count", "n_head"}},
         {{"attention.layer_norm_epsilon", "layer_norm_epsilon"}},
         {{"activation_function", "gelu_new"}},
         {}},
    };
  }();
  return *architectures;
}

const GgufArchitecture* GgufArchitectureOf(absl::string_view model_type) {
  if (model_type == "mistral") model_type = "llama";
  for (const GgufArchitecture& architecture : GgufArchitectureTable()) {
    if (architecture.model_type == model_type) return &architecture;
  }
  return nullptr;
}

}  // namespace millrace
