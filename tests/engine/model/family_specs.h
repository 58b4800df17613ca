// Small models of every kind of block, for tests of what must hold for all of them.
#ifndef MILLRACE_TESTS_ENGINE_MODEL_FAMILY_SPECS_H_
#define MILLRACE_TESTS_ENGINE_MODEL_FAMILY_SPECS_H_

#include <cmath>
#include <vector>

#include "engine/model/model_spec.h"

namespace millrace {

inline ModelSpec LlamaSpec(bool tied) {
  ModelSpec spec;
  spec.model_type = "llama";
  spec.vocab_size = 71;
  spec.hidden_size = 32;
  spec.num_layers = 3;
  spec.num_heads = 4;
  spec.num_kv_heads = 2;
  spec.head_dim = spec.rotary_width = 8;
  spec.attention_scale = 0.35;
  spec.intermediate_size = 48;
  spec.max_positions = 64;
  spec.tied_embeddings = tied;
  return spec;
}

inline ModelSpec Gpt2Spec() {
  ModelSpec spec = LlamaSpec(/*tied=*/true);
  spec.model_type = "gpt2";
  spec.num_kv_heads = 4;
  spec.norm = NormKind::kLayerNorm;
  spec.norm_bias = true;
  spec.position = PositionKind::kLearned;
  spec.attention_bias = spec.attention_output_bias = spec.mlp_bias = true;
  spec.activation = ActivationKind::kGeluTanh;
  spec.gated_mlp = false;
  return spec;
}

// As Gemma: norms before and after, of heads too, windows with a rotation of their own, caps.
inline ModelSpec GemmaSpec() {
  ModelSpec spec = LlamaSpec(/*tied=*/true);
  spec.model_type = "gemma3_text";
  spec.norm_plus_one = spec.norm_after = true;
  spec.query_key_norm = QueryKeyNorm::kPerHead;
  spec.embedding_scale = std::sqrt(32.0);
  spec.window = 5;
  spec.windowed = {true, false, true};
  spec.rotary.scaling = RotaryScaling::kLinear;
  spec.rotary.factor = 4;
  spec.window_rotary = RotaryEmbedding{.theta = 100};
  spec.attention_softcap = 3;
  spec.logit_softcap = 5;
  spec.activation = ActivationKind::kGeluTanh;
  return spec;
}

// As OLMo 2: norms after alone, of queries and keys whole.
inline ModelSpec OlmoSpec() {
  ModelSpec spec = LlamaSpec(/*tied=*/false);
  spec.model_type = "olmo2";
  spec.norm_before = false;
  spec.norm_after = true;
  spec.query_key_norm = QueryKeyNorm::kWhole;
  return spec;
}

// As GPT-NeoX: a parallel residual, and heads that turn in part.
inline ModelSpec NeoxSpec() {
  ModelSpec spec = Gpt2Spec();
  spec.model_type = "gpt_neox";
  spec.position = PositionKind::kRotary;
  spec.rotary_width = 4;
  spec.parallel_residual = true;
  spec.activation = ActivationKind::kGelu;
  spec.tied_embeddings = false;
  return spec;
}

inline std::vector<ModelSpec> FamilySpecs() {
  return {LlamaSpec(false), LlamaSpec(true), Gpt2Spec(), GemmaSpec(), OlmoSpec(), NeoxSpec()};
}

// Switches that no family sets together. One after the other: layer norms with biases before and
// after, norms of queries and keys whole, windows that rotate as other layers do.
inline ModelSpec MixedSpec() {
  ModelSpec spec = Gpt2Spec();
  spec.num_kv_heads = 2;
  spec.norm_after = true;
  spec.query_key_norm = QueryKeyNorm::kWhole;
  spec.position = PositionKind::kRotary;
  spec.rotary_width = 6;
  spec.window = 3;
  spec.windowed = {false, true, true};
  spec.attention_scale_by_layer = true;
  spec.activation = ActivationKind::kRelu;
  spec.tied_embeddings = false;
  spec.embedding_scale = 3;
  return spec;
}

// In parallel: norms of heads, a window with a rotation of its own, caps, a gated MLP.
inline ModelSpec ParallelMixedSpec() {
  ModelSpec spec = LlamaSpec(/*tied=*/true);
  spec.parallel_residual = true;
  spec.norm_plus_one = true;
  spec.query_key_norm = QueryKeyNorm::kPerHead;
  spec.window = 4;
  spec.windowed = {true, true, false};
  spec.window_rotary = RotaryEmbedding{.theta = 50};
  spec.attention_softcap = 2;
  spec.logit_softcap = 4;
  spec.attention_output_bias = true;
  spec.embedding_scale = 0.5;
  return spec;
}

inline std::vector<ModelSpec> FamilyAndMixedSpecs() {
  std::vector<ModelSpec> specs = FamilySpecs();
  specs.push_back(MixedSpec());
  specs.push_back(ParallelMixedSpec());
  return specs;
}

}  // namespace millrace

#endif  // MILLRACE_TESTS_ENGINE_MODEL_FAMILY_SPECS_H_
