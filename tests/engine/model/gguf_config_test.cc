#include "engine/model/gguf_config.h"

#include <cmath>
#include <memory>
#include <numbers>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/model/families.h"
#include "engine/model/gguf_names.h"
#include "engine/model/gguf_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A file with this metadata, an embedding of 11 tokens and the F32 vectors `vectors`.
struct Model {
  std::string architecture;
  GgufMetadata metadata;
  std::vector<std::pair<std::string, std::vector<float>>> vectors = {};

  absl::StatusOr<json> Config() const {
    const std::string path = ::testing::TempDir() + "/config.gguf";
    GgufMetadata all = {{"general.architecture", GgufValue::String(architecture)}};
    for (const auto& [key, value] : metadata) {
      const bool own = absl::StartsWith(key, "tokenizer.") || absl::StartsWith(key, "split.");
      all.emplace_back(own ? key : absl::StrCat(architecture, ".", key), value);
    }
    std::vector<GgufTensor> tensors = {{"token_embd.weight", &InfoOf(GgmlType::kF32), {11, 16}}};
    for (const auto& [name, values] : vectors) {
      tensors.push_back({name, &InfoOf(GgmlType::kF32), {static_cast<int64_t>(values.size())}});
    }
    auto writer = GgufWriter::Create(path, all, tensors);
    EXPECT_TRUE(writer.ok()) << writer.status();
    EXPECT_TRUE(writer->Append(std::vector<float>(11 * 16, 0.5f)).ok());
    for (const auto& [name, values] : vectors) EXPECT_TRUE(writer->Append(values).ok());
    EXPECT_TRUE(writer->Finish().ok());
    const auto file = GgufFile::Open(path);
    EXPECT_TRUE(file.ok()) << file.status();
    return GgufConfig(**file);
  }
  absl::StatusOr<ModelSpec> Spec() const {
    const absl::StatusOr<json> config = Config();
    if (!config.ok()) return config.status();
    return ParseModelConfig(*config, std::nullopt);
  }
  std::string Error() const {
    const absl::StatusOr<json> config = Config();
    EXPECT_TRUE(absl::IsInvalidArgument(config.status())) << config.status();
    return std::string(config.status().message());
  }
  Model With(const std::string& key, GgufValue value) const {
    Model model = *this;
    std::erase_if(model.metadata, [&](const auto& pair) { return pair.first == key; });
    model.metadata.emplace_back(key, std::move(value));
    return model;
  }
  Model Without(const std::string& key) const {
    Model model = *this;
    std::erase_if(model.metadata, [&](const auto& pair) { return pair.first == key; });
    return model;
  }
  Model With(const std::string& tensor, std::vector<float> values) const {
    Model model = *this;
    model.vectors.emplace_back(tensor, std::move(values));
    return model;
  }
};

GgufValue Whole(uint32_t value) { return GgufValue::Uint32(value); }
GgufValue Real(float value) { return GgufValue::Float32(value); }

// 4 heads of 4, 2 key/value heads.
Model ModelOf(const std::string& architecture) {
  return {architecture,
          {{"block_count", Whole(3)},
           {"context_length", Whole(64)},
           {"embedding_length", Whole(16)},
           {"feed_forward_length", Whole(40)},
           {"attention.head_count", Whole(4)},
           {"attention.head_count_kv", Whole(2)},
           {"attention.layer_norm_rms_epsilon", Real(1e-6f)}}};
}

void ExpectHas(const absl::StatusOr<json>& config, const json& expected) {
  ASSERT_TRUE(config.ok()) << config.status();
  for (const auto& [key, value] : expected.items()) {
    ASSERT_TRUE(config->contains(key)) << key;
    EXPECT_EQ((*config)[key], value) << key;
  }
}

TEST(GgufConfig, EveryArchitectureHasItsNumbers) {
  for (const auto& [architecture, model_type] : {std::pair{"llama", "llama"},
                                                 {"qwen2", "qwen2"},
                                                 {"qwen3", "qwen3"},
                                                 {"gemma2", "gemma2"},
                                                 {"gemma3", "gemma3_text"},
                                                 {"phi3", "phi3"}}) {
    SCOPED_TRACE(architecture);
    ExpectHas(ModelOf(architecture).Config(), {{"model_type", model_type},
                                               {"vocab_size", 11},
                                               {"num_hidden_layers", 3},
                                               {"max_position_embeddings", 64},
                                               {"hidden_size", 16},
                                               {"intermediate_size", 40},
                                               {"num_attention_heads", 4},
                                               {"num_key_value_heads", 2},
                                               {"rms_norm_eps", 1e-6},
                                               {"rope_theta", 10000.0},
                                               {"tie_word_embeddings", true}});
  }
}

TEST(GgufConfig, WhatTensorsSayIsInTheConfig) {
  Model llama = ModelOf("llama").With("vocab_size", Whole(11));
  ExpectHas(llama.Config(), {{"attention_bias", false}, {"mlp_bias", false}});
  ExpectHas(llama.With("blk.0.attn_q.bias", std::vector<float>(16))
                .With("blk.0.ffn_up.bias", std::vector<float>(40))
                .With("output.weight", std::vector<float>(16))
                .Config(),
            {{"attention_bias", true}, {"mlp_bias", true}, {"tie_word_embeddings", false}});
  ExpectHas(ModelOf("qwen3").With("attention.key_length", Whole(8)).Config(),
            {{"head_dim", 8}, {"attention_bias", false}, {"use_sliding_window", false}});
  ExpectHas(llama.With("tokenizer.ggml.eos_token_id", Whole(7)).Config(), {{"eos_token_id", 7}});
}

TEST(GgufConfig, GemmaHasItsCapsWindowsAndScales) {
  const Model gemma2 = ModelOf("gemma2")
                           .With("attention.key_length", Whole(8))
                           .With("attention.value_length", Whole(8))
                           .With("attention.sliding_window", Whole(32))
                           .With("attn_logit_softcapping", Real(50.0f))
                           .With("final_logit_softcapping", Real(30.0f));
  ExpectHas(gemma2.Config(), {{"hidden_activation", "gelu_pytorch_tanh"},
                              {"head_dim", 8},
                              {"query_pre_attn_scalar", 8},
                              {"sliding_window", 32},
                              {"attn_logit_softcapping", 50.0},
                              {"final_logit_softcapping", 30.0}});
  // The 27B model has 46 blocks and scales by hidden / heads.
  ExpectHas(gemma2.With("block_count", Whole(46)).Config(), {{"query_pre_attn_scalar", 4}});
  ExpectHas(ModelOf("gemma3")
                .With("attention.sliding_window", Whole(32))
                .With("rope.freq_base", Real(1e6f))
                .With("rope.scaling.type", GgufValue::String("linear"))
                .With("rope.scaling.factor", Real(8.0f))
                .Config(),
            {{"rope_theta", 1e6},
             {"rope_local_base_freq", 10000.0},
             {"sliding_window_pattern", 6},
             {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}});
}

TEST(GgufConfig, EveryArchitectureIsAModel) {
  for (const char* architecture : {"llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3"}) {
    SCOPED_TRACE(architecture);
    const absl::StatusOr<ModelSpec> spec = ModelOf(architecture).Spec();
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->head_dim, 4);
    EXPECT_EQ(spec->attention_scale, 0.5);
    EXPECT_EQ(spec->window > 0, spec->model_type == "gemma2");
  }
}

TEST(GgufConfig, WindowsAreThoseOfTheFamily) {
  const auto windowed = [](const Model& model) {
    const absl::StatusOr<ModelSpec> spec = model.Spec();
    EXPECT_TRUE(spec.ok()) << spec.status();
    return spec->windowed;
  };
  const Model gemma3 =
      ModelOf("gemma3").With("block_count", Whole(7)).With("attention.sliding_window", Whole(5));
  EXPECT_THAT(windowed(gemma3), ElementsAre(true, true, true, true, true, false, true));
  EXPECT_THAT(windowed(gemma3.With("attention.sliding_window_pattern", Whole(2))),
              ElementsAre(true, false, true, false, true, false, true));
  EXPECT_THAT(windowed(gemma3.Without("attention.sliding_window")), ElementsAre());
  EXPECT_THAT(windowed(ModelOf("phi3").With("attention.sliding_window", Whole(0))), ElementsAre());
  EXPECT_THAT(windowed(ModelOf("phi3").With("attention.sliding_window", Whole(5))),
              ElementsAre(true, true, true));
  const Model mistral = ModelOf("llama").With("attention.sliding_window", Whole(5));
  EXPECT_EQ(mistral.Spec()->model_type, "mistral");
  EXPECT_THAT(windowed(mistral), ElementsAre(true, true, true));
}

TEST(GgufConfig, RotaryScalingIsThatOfTheDirectory) {
  ExpectHas(ModelOf("qwen2")
                .With("rope.scaling.type", GgufValue::String("yarn"))
                .With("rope.scaling.factor", Real(4.0f))
                .With("rope.scaling.original_context_length", Whole(32))
                .Config(),
            {{"rope_scaling",
              {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}}}});
  const Model yarn = ModelOf("qwen2")
                         .With("rope.scaling.type", GgufValue::String("yarn"))
                         .With("rope.scaling.factor", Real(4.0f))
                         .With("rope.scaling.yarn_ext_factor", Real(1.0f));
  EXPECT_EQ(yarn.With("rope.scaling.yarn_attn_factor", Real(1.5f)).Spec()->rotary.attention_factor,
            1.5);
  EXPECT_DOUBLE_EQ(
      yarn.With("rope.scaling.attn_factor", Real(2.0f)).Spec()->rotary.attention_factor,
      2 * (0.1 * std::log(4.0) + 1));
  EXPECT_THAT(yarn.With("rope.scaling.yarn_ext_factor", Real(0.0f)).Error(),
              HasSubstr("qwen2.rope.scaling.yarn_ext_factor is not 1"));
  const Model phi3 = ModelOf("phi3")
                         .With("rope.dimension_count", Whole(4))
                         .With("rope.scaling.original_context_length", Whole(16))
                         .With("rope_factors_long.weight", {1.5f, 2.0f})
                         .With("rope_factors_short.weight", {1.0f, 1.25f});
  const json longrope = {
      {"type", "longrope"}, {"long_factor", {1.5, 2.0}}, {"short_factor", {1.0, 1.25}}};
  ExpectHas(phi3.Config(), {{"rope_scaling", longrope}, {"original_max_position_embeddings", 16}});
  const float factor = static_cast<float>(std::sqrt(1 + std::log(4.0) / std::log(16.0)));
  ExpectHas(phi3.With("rope.scaling.attn_factor", Real(factor)).Config(),
            {{"rope_scaling", longrope}});
  EXPECT_EQ(phi3.With("rope.scaling.attn_factor", Real(2.0f)).Spec()->rotary.attention_factor, 2.0);
  ExpectHas(ModelOf("phi3").With("rope.dimension_count", Whole(2)).Config(),
            {{"partial_rotary_factor", 0.5}});
}

TEST(GgufConfig, FactorsOfLlama3AreRecognized) {
  Model llama = ModelOf("llama")
                    .With("attention.key_length", Whole(64))
                    .With("rope.freq_base", Real(500000.0f));
  std::vector<float> factors;
  for (int i = 0; i < 32; ++i) {
    const double wavelength = 2 * std::numbers::pi * std::pow(500000.0, i / 32.0);
    const double smooth = (8192 / wavelength - 1) / 3;
    factors.push_back(static_cast<float>(wavelength < 2048   ? 1.0
                                         : wavelength > 8192 ? 32.0
                                                             : 1 / ((1 - smooth) / 32 + smooth)));
  }
  ExpectHas(llama.With("rope_freqs.weight", factors).Config(),
            {{"rope_scaling",
              {{"rope_type", "llama3"},
               {"factor", 32.0},
               {"low_freq_factor", 1.0},
               {"high_freq_factor", 4.0},
               {"original_max_position_embeddings", 8192}}}});
  EXPECT_EQ(llama.With("rope_freqs.weight", factors).Spec()->rotary.scaling,
            RotaryScaling::kLlama3);
  factors[3] = 1.5f;
  const absl::StatusOr<ModelSpec> other = llama.With("rope_freqs.weight", factors).Spec();
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->rotary.scaling, RotaryScaling::kLongRope);
  EXPECT_EQ(other->rotary.short_factors[3], 1.5);
  EXPECT_EQ(other->rotary.short_factors, other->rotary.long_factors);
  EXPECT_EQ(other->rotary.attention_factor, 1.0);
  factors.pop_back();
  EXPECT_THAT(llama.With("rope_freqs.weight", factors).Error(), HasSubstr("31 elements"));
}

TEST(GgufConfig, WhatIsMissingOrUnknownIsNamed) {
  const Model llama = ModelOf("llama");
  EXPECT_THAT(Model({"mamba", {}}).Error(), AllOf(HasSubstr("\"mamba\""), HasSubstr("qwen3")));
  EXPECT_THAT(llama.Without("block_count").Error(), HasSubstr("llama.block_count is missing"));
  EXPECT_THAT(llama.Without("attention.layer_norm_rms_epsilon").Error(),
              HasSubstr("llama.attention.layer_norm_rms_epsilon is missing"));
  EXPECT_THAT(llama.With("block_count", Real(3.0f)).Error(), HasSubstr("llama.block_count"));
  EXPECT_THAT(llama.With("attention.head_count", GgufValue::Int32s({4, 4, 2})).Error(),
              HasSubstr("one for all blocks"));
  EXPECT_THAT(llama.With("attention.head_count", Whole(0)).Error(), HasSubstr("is zero"));
  EXPECT_THAT(llama.With("attention.value_length", Whole(5)).Error(),
              HasSubstr("llama.attention.value_length"));
  EXPECT_THAT(llama.With("logit_scale", Real(2.0f)).Error(),
              HasSubstr("llama.logit_scale is not supported"));
  EXPECT_THAT(llama.With("expert_count", Whole(8)).Error(), HasSubstr("experts"));
  EXPECT_TRUE(llama.With("expert_count", Whole(0)).Config().ok());
  EXPECT_THAT(llama.With("rope.scaling.type", GgufValue::String("su")).Error(),
              HasSubstr("llama.rope.scaling.type"));
  EXPECT_THAT(llama.With("rope.scaling.attn_factor", Real(1.5f)).Error(),
              HasSubstr("llama.rope.scaling.attn_factor is not supported"));
  EXPECT_THAT(llama.With("split.count", Whole(2)).Error(), HasSubstr("split.count"));
}

TEST(GgufNames, NamesAreThoseOfTheDirectoryAndBack) {
  struct Row {
    const char *architecture, *gguf, *hub;
    GgufChange change;
  };
  constexpr GgufChange kNone = GgufChange::kNone, kPlusOne = GgufChange::kPlusOne;
  for (const Row& row : std::vector<Row>{
           {"llama", "token_embd.weight", "model.embed_tokens.weight", kNone},
           {"llama", "blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight",
            GgufChange::kInterleavedQuery},
           {"llama", "blk.12.attn_k.bias", "model.layers.12.self_attn.k_proj.bias",
            GgufChange::kInterleavedKey},
           {"llama", "output.weight", "lm_head.weight", kNone},
           {"qwen2", "blk.1.attn_q.bias", "model.layers.1.self_attn.q_proj.bias", kNone},
           {"qwen3", "blk.1.attn_q_norm.weight", "model.layers.1.self_attn.q_norm.weight", kNone},
           {"gemma2", "blk.1.ffn_norm.weight", "model.layers.1.pre_feedforward_layernorm.weight",
            kPlusOne},
           {"gemma2", "blk.1.post_attention_norm.weight",
            "model.layers.1.post_attention_layernorm.weight", kPlusOne},
           {"gemma3", "blk.1.post_ffw_norm.weight",
            "model.layers.1.post_feedforward_layernorm.weight", kPlusOne},
           {"gemma3", "blk.1.attn_k_norm.weight", "model.layers.1.self_attn.k_norm.weight",
            kPlusOne},
           {"gemma3", "output_norm.weight", "model.norm.weight", kPlusOne},
           {"phi3", "blk.1.attn_qkv.weight", "model.layers.1.self_attn.qkv_proj.weight", kNone},
           {"phi3", "blk.1.ffn_up.weight", "model.layers.1.mlp.gate_up_proj.weight", kNone},
           {"gpt2", "blk.1.attn_qkv.weight", "transformer.h.1.attn.c_attn.weight",
            GgufChange::kTransposed},
           {"gpt2", "blk.1.attn_qkv.bias", "transformer.h.1.attn.c_attn.bias", kNone}}) {
    SCOPED_TRACE(row.gguf);
    const auto hub = HubNameOf(row.architecture, row.gguf);
    ASSERT_TRUE(hub.has_value());
    EXPECT_EQ(hub->name, row.hub);
    EXPECT_EQ(hub->change, row.change);
    const auto gguf = GgufNameOf(row.architecture, row.hub);
    ASSERT_TRUE(gguf.has_value());
    EXPECT_EQ(gguf->name, row.gguf);
  }
  for (const char* name : {"blk.attn_q.weight", "blk..attn_q.weight", "blk.x.attn_q.weight",
                           "blk.1.attn_q", "blk.1.attn_q.scale", "blk.1.ffn_gate_exps.weight"}) {
    EXPECT_FALSE(HubNameOf("llama", name).has_value()) << name;
  }
  EXPECT_FALSE(HubNameOf("mamba", "token_embd.weight").has_value());
}

}  // namespace
}  // namespace millrace
