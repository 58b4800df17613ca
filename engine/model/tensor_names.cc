#include "engine/model/tensor_names.h"

namespace millrace {
namespace {

struct NamingScheme {
  absl::string_view model_type;
  std::vector<ModuleNames> modules;  // before those of llama
};

using enum TensorRole;

const std::vector<ModuleNames>& LlamaNames() {
  static const auto* names = new std::vector<ModuleNames>{
      {kTokenEmbedding, {"model.embed_tokens"}},
      {kPositionEmbedding, {"model.embed_positions"}},
      {kAttentionNorm, {"model.layers.{}.input_layernorm"}},
      {kQkv,
       {"model.layers.{}.self_attn.q_proj", "model.layers.{}.self_attn.k_proj",
        "model.layers.{}.self_attn.v_proj"}},
      {kQueryNorm, {"model.layers.{}.self_attn.q_norm"}},
      {kKeyNorm, {"model.layers.{}.self_attn.k_norm"}},
      {kAttentionOutput, {"model.layers.{}.self_attn.o_proj"}},
      {kMlpNorm, {"model.layers.{}.post_attention_layernorm"}},
      {kMlpIn, {"model.layers.{}.mlp.gate_proj", "model.layers.{}.mlp.up_proj"}},
      {kMlpOut, {"model.layers.{}.mlp.down_proj"}},
      {kFinalNorm, {"model.norm"}},
      {kOutputProjection, {"lm_head"}},
  };
  return *names;
}

const std::vector<NamingScheme>& NamingSchemes() {
  static const auto* schemes = [] {
    const std::vector<ModuleNames> gemma_norms = {
        {kAttentionPostNorm, {"model.layers.{}.post_attention_layernorm"}},
        {kMlpNorm, {"model.layers.{}.pre_feedforward_layernorm"}},
        {kMlpPostNorm, {"model.layers.{}.post_feedforward_layernorm"}},
    };
    return new std::vector<NamingScheme>{
        {"gemma2", gemma_norms},
        {"gemma3_text", gemma_norms},
        {"olmo2",
         {
             {kAttentionPostNorm, {"model.layers.{}.post_attention_layernorm"}},
             {kMlpPostNorm, {"model.layers.{}.post_feedforward_layernorm"}},
         }},
        {"phi3",
         {
             {kQkv, {"model.layers.{}.self_attn.qkv_proj"}},
             {kMlpIn, {"model.layers.{}.mlp.gate_up_proj"}},
         }},
        {"gpt2",
         {
             {kTokenEmbedding, {"transformer.wte"}},
             {kPositionEmbedding, {"transformer.wpe"}},
             {kAttentionNorm, {"transformer.h.{}.ln_1"}},
             {kQkv, {"transformer.h.{}.attn.c_attn"}, true},
             {kAttentionOutput, {"transformer.h.{}.attn.c_proj"}, true},
             {kMlpNorm, {"transformer.h.{}.ln_2"}},
             {kMlpIn, {"transformer.h.{}.mlp.c_fc"}, true},
             {kMlpOut, {"transformer.h.{}.mlp.c_proj"}, true},
             {kFinalNorm, {"transformer.ln_f"}},
         }},
        {"gpt_neox",
         {
             {kTokenEmbedding, {"gpt_neox.embed_in"}},
             {kAttentionNorm, {"gpt_neox.layers.{}.input_layernorm"}},
             {kQkv, {"gpt_neox.layers.{}.attention.query_key_value"}, false, RowOrder::kByHead},
             {kAttentionOutput, {"gpt_neox.layers.{}.attention.dense"}},
             {kMlpNorm, {"gpt_neox.layers.{}.post_attention_layernorm"}},
             {kMlpIn, {"gpt_neox.layers.{}.mlp.dense_h_to_4h"}},
             {kMlpOut, {"gpt_neox.layers.{}.mlp.dense_4h_to_h"}},
             {kFinalNorm, {"gpt_neox.final_layer_norm"}},
             {kOutputProjection, {"embed_out"}},
         }},
    };
  }();
  return *schemes;
}

const ModuleNames* Find(const std::vector<ModuleNames>& modules, TensorRole role) {
  for (const ModuleNames& module : modules) {
    if (module.role == role) return &module;
  }
  return nullptr;
}

}  // namespace

const ModuleNames& ModuleNamesOf(absl::string_view model_type, TensorRole role) {
  for (const NamingScheme& scheme : NamingSchemes()) {
    if (scheme.model_type != model_type) continue;
    if (const ModuleNames* module = Find(scheme.modules, role)) return *module;
  }
  const ModuleNames* module = Find(LlamaNames(), role);
  return module ? *module : LlamaNames().front();
}

}  // namespace millrace
