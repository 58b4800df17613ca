// Configs of models on the hub, as they are published, and what they mean.
#include <cmath>
#include <string>
#include <vector>

#include "engine/model/families.h"
#include "engine/model/slab_layout.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using nlohmann::json;

struct Published {
  const char* name;
  const char* config;
  int64_t parameters;  // as the model's page says, tied embeddings once
  // What is not in the config's numbers: changes the family's or the published spec.
  void (*expect)(const ModelSpec& spec);
};

void PrintTo(const Published& published, std::ostream* out) { *out << published.name; }

std::vector<bool> EachBut(int64_t layers, int64_t pattern) {
  std::vector<bool> windowed(layers);
  for (int64_t i = 0; i < layers; ++i) windowed[i] = (i + 1) % pattern != 0;
  return windowed;
}

std::string Repeated(const char* number, int count) {
  std::string list = number;
  for (int i = 1; i < count; ++i) list += std::string(", ") + number;
  return "[" + list + "]";
}

std::string LongRope(const char* config, int pairs) {
  std::string text = config;
  for (const auto& [mark, number] : {std::pair{"SHORT", "1.05"}, {"LONG", "1.25"}}) {
    text.replace(text.find(mark), std::string(mark).size(), Repeated(number, pairs));
  }
  return text;
}

const std::vector<Published>& AllPublished() {
  static const std::string* phi3_128k = new std::string(LongRope(R"({
      "_name_or_path": "Phi-3-mini-128k-instruct", "architectures": ["Phi3ForCausalLM"],
      "attention_bias": false, "attention_dropout": 0.0,
      "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"}, "bos_token_id": 1,
      "embd_pdrop": 0.0, "eos_token_id": 32000, "hidden_act": "silu", "hidden_size": 3072,
      "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 131072,
      "model_type": "phi3", "num_attention_heads": 32, "num_hidden_layers": 32,
      "num_key_value_heads": 32, "original_max_position_embeddings": 4096, "pad_token_id": 32000,
      "resid_pdrop": 0.0, "rms_norm_eps": 1e-05,
      "rope_scaling": {"long_factor": LONG, "short_factor": SHORT, "type": "longrope"},
      "rope_theta": 10000.0, "sliding_window": 262144, "tie_word_embeddings": false,
      "torch_dtype": "bfloat16", "transformers_version": "4.40.2", "use_cache": true,
      "vocab_size": 32064})",
                                                                 48));
  static const std::string* phi4_mini = new std::string(LongRope(R"({
      "architectures": ["Phi3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"}, "bos_token_id": 199999,
      "embd_pdrop": 0.0, "eos_token_id": 199999, "full_attn_mod": 1, "hidden_act": "silu",
      "hidden_size": 3072, "initializer_range": 0.02, "intermediate_size": 8192,
      "interpolate_factor": 1, "lm_head_bias": false, "max_position_embeddings": 131072,
      "mlp_bias": false, "model_type": "phi3", "num_attention_heads": 24, "num_hidden_layers": 32,
      "num_key_value_heads": 8, "original_max_position_embeddings": 4096, "pad_token_id": 199999,
      "partial_rotary_factor": 0.75, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05,
      "rope_scaling": {"long_factor": LONG, "short_factor": SHORT, "type": "longrope"},
      "rope_theta": 10000.0, "sliding_window": 262144, "tie_word_embeddings": true,
      "torch_dtype": "bfloat16", "transformers_version": "4.45.0", "use_cache": true,
      "vocab_size": 200064})",
                                                                 48));
  static const auto* all = new std::vector<Published>{
      {"Llama_2_7b", R"({"_name_or_path": "meta-llama/Llama-2-7b-hf",
      "architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2,
      "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
      "intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "llama",
      "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
      "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
      "tie_word_embeddings": false, "torch_dtype": "float16",
      "transformers_version": "4.31.0.dev0", "use_cache": true, "vocab_size": 32000})",
       6'738'415'616,
       [](const ModelSpec& spec) {
         EXPECT_EQ(spec.head_dim, 128);
         EXPECT_EQ(spec.rotary, RotaryEmbedding{.theta = 10000.0});
       }},
      {"Llama_3_2_1B", R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": 128001, "head_dim": 64,
      "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
      "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false,
      "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16,
      "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
      "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                       "original_max_position_embeddings": 8192, "rope_type": "llama3"},
      "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
      "transformers_version": "4.45.0.dev0", "use_cache": true, "vocab_size": 128256})",
       1'235'814'400,
       [](const ModelSpec& spec) {
         EXPECT_EQ(spec.rotary, (RotaryEmbedding{.theta = 500000.0,
                                                 .scaling = RotaryScaling::kLlama3,
                                                 .factor = 32.0,
                                                 .original_positions = 8192,
                                                 .low_frequency_factor = 1.0,
                                                 .high_frequency_factor = 4.0}));
         EXPECT_TRUE(spec.tied_embeddings);
         EXPECT_EQ(spec.max_positions, 131072);
       }},
      {"TinyLlama_1_1B", R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
      "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 2048,
      "initializer_range": 0.02, "intermediate_size": 5632, "max_position_embeddings": 2048,
      "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 22,
      "num_key_value_heads": 4, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
      "rope_scaling": null, "rope_theta": 10000.0, "tie_word_embeddings": false,
      "torch_dtype": "bfloat16", "transformers_version": "4.35.0", "use_cache": true,
      "vocab_size": 32000})",
       1'100'048'384, [](const ModelSpec& spec) { EXPECT_EQ(spec.num_kv_heads, 4); }},
      {"SmolLM2_135M", R"({"architectures": ["LlamaForCausalLM"],
      "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 0, "eos_token_id": 0,
      "hidden_act": "silu", "hidden_size": 576, "initializer_range": 0.041666666666666664,
      "intermediate_size": 1536, "is_llama_config": true, "max_position_embeddings": 8192,
      "mlp_bias": false, "model_type": "llama", "num_attention_heads": 9,
      "num_hidden_layers": 30, "num_key_value_heads": 3, "pretraining_tp": 1,
      "rms_norm_eps": 1e-05, "rope_interleaved": false, "rope_scaling": null,
      "rope_theta": 100000, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
      "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}},
      "transformers_version": "4.40.1", "use_cache": true, "vocab_size": 49152})",
       134'515'008,
       [](const ModelSpec& spec) {
         EXPECT_EQ(spec.head_dim, 64);
         EXPECT_EQ(spec.rotary.theta, 100000.0);
         EXPECT_TRUE(spec.tied_embeddings);
       }},
      {"Mistral_7B_v0_1", R"({"architectures": ["MistralForCausalLM"], "bos_token_id": 1,
      "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
      "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral",
      "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
      "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 4096,
      "tie_word_embeddings": false, "torch_dtype": "bfloat16",
      "transformers_version": "4.34.0.dev0", "use_cache": true, "vocab_size": 32000})",
       7'241'732'096,
       [](const ModelSpec& spec) {
         EXPECT_EQ(spec.window, 4096);
         EXPECT_EQ(spec.windowed, std::vector<bool>(32, true));
       }},
      {"Mistral_7B_v0_3", R"({"architectures": ["MistralForCausalLM"], "attention_dropout": 0.0,
      "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096,
      "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 32768,
      "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 32,
      "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0,
      "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
      "transformers_version": "4.42.0.dev0", "use_cache": true, "vocab_size": 32768})",
       7'248'023'552,
       [](const ModelSpec& spec) {
         EXPECT_EQ(spec.window, 0);
         EXPECT_TRUE(spec.windowed.empty());
       }},
      {"Qwen2_5_0_5B", R"({"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0,
      "bos_token_id": 151643, "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 896,
      "initializer_range": 0.02, "intermediate_size": 4864, "max_position_embeddings": 32768,
      "max_window_layers": 24, "model_type": "qwen2", "num_attention_heads": 14,
      "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
      "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true,
      "torch_dtype": "bfloat16", "transformers_version": "4.40.1", "use_cache": true,
      "use_mrope": false, "use_sliding_window": false, "vocab_size": 151936})",
       494'032'768,
       [](const ModelSpec& spec) {
         EXPECT_TRUE(spec.attention_bias);
         EXPECT_FALSE(spec.attention_output_bias);
         EXPECT_EQ(spec.window, 0);
       }},
      {"Qwen3_0_6B", R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128,
      "hidden_act": "silu", "hidden_size": 1024, "initializer_range": 0.02,
      "intermediate_size": 3072, "max_position_embeddings": 40960, "max_window_layers": 28,
      "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28,
      "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null,
      "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": true,
      "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": true,
      "use_sliding_window": false, "vocab_size": 151936})",
       596'049'920,
       [](const ModelSpec& spec) {
         EXPECT_EQ(spec.query_key_norm, QueryKeyNorm::kPerHead);
         EXPECT_EQ(spec.query_size(), 2048);
         EXPECT_FALSE(spec.norm_plus_one);
       }},
      {"gemma_2_2b", R"({"architectures": ["Gemma2ForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "attn_logit_softcapping": 50.0, "bos_token_id": 2,
      "cache_implementation": "hybrid", "eos_token_id": 1, "final_logit_softcapping": 30.0,
      "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
      "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304, "initializer_range": 0.02,
      "intermediate_size": 9216, "max_position_embeddings": 8192, "model_type": "gemma2",
      "num_attention_heads": 8, "num_hidden_layers": 26, "num_key_value_heads": 4,
      "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
      "rope_theta": 10000.0, "sliding_window": 4096, "torch_dtype": "float32",
      "transformers_version": "4.42.4", "use_cache": true, "vocab_size": 256000})",
       2'614'341'888,
       [](const ModelSpec& spec) {
         EXPECT_TRUE(spec.norm_plus_one && spec.norm_before && spec.norm_after);
         EXPECT_TRUE(spec.tied_embeddings);
         EXPECT_EQ(spec.embedding_scale, 48.0);
         EXPECT_EQ(spec.attention_scale, 1.0 / 16);
         EXPECT_EQ(spec.attention_softcap, 50.0);
         EXPECT_EQ(spec.logit_softcap, 30.0);
         EXPECT_EQ(spec.activation, ActivationKind::kGeluTanh);
         EXPECT_EQ(spec.window, 4096);
         EXPECT_EQ(spec.windowed, EachBut(26, 2));
         EXPECT_FALSE(spec.window_rotary.has_value());
       }},
      {"gemma_3_1b_it", R"({"architectures": ["Gemma3ForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "attn_logit_softcapping": null, "bos_token_id": 2,
      "cache_implementation": "hybrid", "eos_token_id": [1, 106],
      "final_logit_softcapping": null, "head_dim": 256,
      "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152, "initializer_range": 0.02,
      "intermediate_size": 6912, "max_position_embeddings": 32768, "model_type": "gemma3_text",
      "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1,
      "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
      "rope_local_base_freq": 10000, "rope_scaling": null, "rope_theta": 1000000,
      "sliding_window": 512, "sliding_window_pattern": 6, "torch_dtype": "bfloat16",
      "transformers_version": "4.50.0.dev0", "use_cache": true, "vocab_size": 262144})",
       999'885'952,
       [](const ModelSpec& spec) {
         EXPECT_EQ(spec.query_key_norm, QueryKeyNorm::kPerHead);
         EXPECT_EQ(spec.rotary, RotaryEmbedding{.theta = 1e6});
         EXPECT_EQ(spec.window_rotary, RotaryEmbedding{.theta = 10000.0});
         EXPECT_EQ(spec.windowed, EachBut(26, 6));
         EXPECT_EQ(spec.window, 512);
         EXPECT_EQ(spec.logit_softcap, 0.0);
         EXPECT_DOUBLE_EQ(spec.embedding_scale, std::sqrt(1152.0));
       }},
      {"Phi_3_mini_4k", R"({"architectures": ["Phi3ForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"},
      "bos_token_id": 1, "embd_pdrop": 0.0, "eos_token_id": 32000, "hidden_act": "silu",
      "hidden_size": 3072, "initializer_range": 0.02, "intermediate_size": 8192,
      "max_position_embeddings": 4096, "model_type": "phi3", "num_attention_heads": 32,
      "num_hidden_layers": 32, "num_key_value_heads": 32,
      "original_max_position_embeddings": 4096, "pad_token_id": 32000, "resid_pdrop": 0.0,
      "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000.0,
      "sliding_window": 2047, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
      "transformers_version": "4.40.2", "use_cache": true, "vocab_size": 32064})",
       3'821'079'552,
       [](const ModelSpec& spec) {
         EXPECT_EQ(spec.window, 2047);
         EXPECT_EQ(spec.rotary_width, 96);
         EXPECT_EQ(spec.rotary.scaling, RotaryScaling::kNone);
       }},
      {"Phi_3_mini_128k", phi3_128k->c_str(), 3'821'079'552,
       [](const ModelSpec& spec) {
         EXPECT_EQ(spec.rotary.scaling, RotaryScaling::kLongRope);
         EXPECT_EQ(spec.rotary.original_positions, 4096);
         EXPECT_EQ(spec.rotary.short_factors, std::vector<double>(48, 1.05));
         EXPECT_EQ(spec.rotary.long_factors, std::vector<double>(48, 1.25));
         EXPECT_DOUBLE_EQ(spec.rotary.attention_factor,
                          std::sqrt(1 + std::log(32.0) / std::log(4096.0)));
       }},
      {"Phi_4_mini", phi4_mini->c_str(), 3'836'021'760,
       [](const ModelSpec& spec) {
         EXPECT_EQ(spec.head_dim, 128);
         EXPECT_EQ(spec.rotary_width, 96);
         EXPECT_EQ(spec.rotary.long_factors.size(), 48);
         EXPECT_TRUE(spec.tied_embeddings);
       }},
      {"OLMo_2_1B", R"({"architectures": ["Olmo2ForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "eos_token_id": 100257, "hidden_act": "silu",
      "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
      "max_position_embeddings": 4096, "model_type": "olmo2", "num_attention_heads": 16,
      "num_hidden_layers": 16, "num_key_value_heads": 16, "pad_token_id": 100277,
      "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 500000,
      "tie_word_embeddings": false, "torch_dtype": "float32", "transformers_version": "4.47.0",
      "use_cache": true, "vocab_size": 100352})",
       1'484'916'736,
       [](const ModelSpec& spec) {
         EXPECT_FALSE(spec.norm_before);
         EXPECT_TRUE(spec.norm_after);
         EXPECT_EQ(spec.query_key_norm, QueryKeyNorm::kWhole);
       }},
      {"pythia_160m", R"({"architectures": ["GPTNeoXForCausalLM"], "bos_token_id": 0,
      "eos_token_id": 0, "hidden_act": "gelu", "hidden_size": 768, "initializer_range": 0.02,
      "intermediate_size": 3072, "layer_norm_eps": 1e-05, "max_position_embeddings": 2048,
      "model_type": "gpt_neox", "num_attention_heads": 12, "num_hidden_layers": 12,
      "rotary_emb_base": 10000, "rotary_pct": 0.25, "tie_word_embeddings": false,
      "torch_dtype": "float16", "transformers_version": "4.24.0", "use_cache": true,
      "use_parallel_residual": true, "vocab_size": 50304})",
       162'322'944,
       [](const ModelSpec& spec) {
         EXPECT_EQ(spec.rotary_width, 16);
         EXPECT_TRUE(spec.parallel_residual && spec.norm_bias && spec.attention_output_bias);
         EXPECT_EQ(spec.norm, NormKind::kLayerNorm);
         EXPECT_EQ(spec.activation, ActivationKind::kGelu);
       }},
      {"gpt_neox_20b", R"({"architectures": ["GPTNeoXForCausalLM"],
      "attention_probs_dropout_prob": 0, "bos_token_id": 0, "eos_token_id": 0,
      "hidden_act": "gelu_fast", "hidden_dropout_prob": 0, "hidden_size": 6144,
      "initializer_range": 0.02, "intermediate_size": 24576, "layer_norm_eps": 1e-05,
      "max_position_embeddings": 2048, "model_type": "gpt_neox", "num_attention_heads": 64,
      "num_hidden_layers": 44, "rotary_emb_base": 10000, "rotary_pct": 0.25,
      "tie_word_embeddings": false, "torch_dtype": "float16",
      "transformers_version": "4.19.0.dev0", "use_cache": true, "vocab_size": 50432})",
       20'554'567'680,
       [](const ModelSpec& spec) {
         EXPECT_EQ(spec.rotary_width, 24);
         EXPECT_EQ(spec.activation, ActivationKind::kGeluTanh);
       }},
      {"gpt2", R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
      "attn_pdrop": 0.1, "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256,
      "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "gpt2",
      "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
      "resid_pdrop": 0.1, "summary_activation": null, "summary_first_dropout": 0.1,
      "summary_proj_to_labels": true, "summary_type": "cls_index", "summary_use_proj": true,
      "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
      "vocab_size": 50257})",
       124'439'808,
       [](const ModelSpec& spec) {
         EXPECT_EQ(spec.attention_scale, 1.0 / 8);
         EXPECT_EQ(spec.activation, ActivationKind::kGeluTanh);
         EXPECT_EQ(spec.rotary_width, 0);
       }},
  };
  return *all;
}

class PublishedConfigTest : public testing::TestWithParam<Published> {
 protected:
  absl::StatusOr<ModelSpec> Parse(const json& config) {
    return ParseModelConfig(config, std::nullopt, nullptr, &notes_);
  }

  std::vector<FieldProblem> notes_;
};

TEST_P(PublishedConfigTest, MeansTheModel) {
  const absl::StatusOr<ModelSpec> spec = Parse(json::parse(GetParam().config));
  ASSERT_TRUE(spec.ok()) << spec.status();
  GetParam().expect(*spec);
  EXPECT_EQ(notes_.size(), spec->model_type == "gpt2" ? 3 : 0);
  int64_t parameters = 0;
  for (const SlabLayout& slab : MakeSlabLayouts(*spec)) parameters += slab.parameters();
  EXPECT_EQ(parameters, GetParam().parameters);
}

TEST_P(PublishedConfigTest, IsReadBackAsWritten) {
  const absl::StatusOr<ModelSpec> spec = Parse(json::parse(GetParam().config));
  ASSERT_TRUE(spec.ok()) << spec.status();
  const json written = WriteModelConfig(*spec);
  const absl::StatusOr<ModelSpec> again = ParseModelConfig(written, std::nullopt);
  ASSERT_TRUE(again.ok()) << again.status() << "\n" << written;
  EXPECT_TRUE(*spec == *again) << written;
}

INSTANTIATE_TEST_SUITE_P(Hub, PublishedConfigTest, testing::ValuesIn(AllPublished()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace millrace
