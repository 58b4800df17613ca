#include "engine/model/families.h"

#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json TinyLlama() {
  return json::parse(R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
      "max_position_embeddings": 256})");
}

json TinyGpt2() {
  return json::parse(R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4,
      "n_positions": 128, "vocab_size": 300})");
}

std::vector<FieldProblem> ProblemsOf(const json& config, std::optional<int64_t> vocab = 257) {
  std::vector<FieldProblem> problems;
  const absl::StatusOr<ModelSpec> spec = ParseModelConfig(config, vocab, &problems);
  EXPECT_EQ(spec.ok(), problems.empty());
  if (!spec.ok()) {
    EXPECT_TRUE(absl::IsInvalidArgument(spec.status()));
  }
  return problems;
}

// The one problem, as "field: message".
std::string ProblemOf(const json& config, std::optional<int64_t> vocab = 257) {
  const std::vector<FieldProblem> problems = ProblemsOf(config, vocab);
  EXPECT_EQ(problems.size(), 1) << StatusOf(problems).message();
  return std::string(StatusOf(problems).message());
}

json With(json config, const std::string& key, json value) {
  config[key] = std::move(value);
  return config;
}

TEST(ParseModelConfig, ReadsLlama) {
  const absl::StatusOr<ModelSpec> spec = ParseModelConfig(TinyLlama(), 257);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->vocab_size, 257);
  EXPECT_EQ(spec->hidden_size, 64);
  EXPECT_EQ(spec->num_layers, 2);
  EXPECT_EQ(spec->num_kv_heads, 2);
  EXPECT_EQ(spec->head_dim, 16);
  EXPECT_EQ(spec->qkv_size(), 64 + 2 * 32);
  EXPECT_EQ(spec->norm, NormKind::kRmsNorm);
  EXPECT_EQ(spec->position, PositionKind::kRotary);
  EXPECT_EQ(spec->activation, ActivationKind::kSilu);
  EXPECT_TRUE(spec->gated_mlp);
  EXPECT_EQ(spec->norm_epsilon, 1e-6);
  EXPECT_EQ(spec->rotary.theta, 10000.0);
  EXPECT_FALSE(spec->tied_embeddings);
  EXPECT_FALSE(spec->norm_bias);
  EXPECT_FALSE(spec->attention_bias);
  EXPECT_FALSE(spec->scaled_residual_init);
}

TEST(ParseModelConfig, ReadsGpt2) {
  const absl::StatusOr<ModelSpec> spec = ParseModelConfig(TinyGpt2(), 257);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->vocab_size, 300);
  EXPECT_EQ(spec->intermediate_size, 256);
  EXPECT_EQ(spec->num_kv_heads, 4);
  EXPECT_EQ(spec->max_positions, 128);
  EXPECT_EQ(spec->norm, NormKind::kLayerNorm);
  EXPECT_EQ(spec->position, PositionKind::kLearned);
  EXPECT_EQ(spec->activation, ActivationKind::kGeluTanh);
  EXPECT_FALSE(spec->gated_mlp);
  EXPECT_TRUE(spec->norm_bias && spec->attention_bias && spec->attention_output_bias);
  EXPECT_TRUE(spec->mlp_bias && spec->tied_embeddings && spec->scaled_residual_init);
}

TEST(ParseModelConfig, LeftOutKeysHaveTheDefaultsOfTransformers) {
  const absl::StatusOr<ModelSpec> llama = ParseModelConfig({{"model_type", "llama"}}, std::nullopt);
  ASSERT_TRUE(llama.ok()) << llama.status();
  EXPECT_EQ(llama->vocab_size, 32000);
  EXPECT_EQ(llama->hidden_size, 4096);
  EXPECT_EQ(llama->intermediate_size, 11008);
  EXPECT_EQ(llama->num_kv_heads, 32);
  const absl::StatusOr<ModelSpec> gpt2 = ParseModelConfig({{"model_type", "gpt2"}}, std::nullopt);
  ASSERT_TRUE(gpt2.ok()) << gpt2.status();
  EXPECT_EQ(gpt2->vocab_size, 50257);
  EXPECT_EQ(gpt2->hidden_size, 768);
  EXPECT_EQ(gpt2->intermediate_size, 3072);
}

TEST(ParseModelConfig, TakesWholeNumbersWrittenAsReals) {
  const absl::StatusOr<ModelSpec> spec =
      ParseModelConfig(With(TinyLlama(), "hidden_size", 64.0), 257);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->hidden_size, 64);
}

TEST(ParseModelConfig, TakesPublishedConfigs) {
  // SmolLM2-135M and GPT-2 as published, the latter without its dropout.
  const json smollm2 = json::parse(R"({"architectures": ["LlamaForCausalLM"],
      "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 0, "eos_token_id": 0,
      "hidden_act": "silu", "hidden_size": 576, "initializer_range": 0.041666666666666664,
      "intermediate_size": 1536, "is_llama_config": true, "max_position_embeddings": 8192,
      "mlp_bias": false, "model_type": "llama", "num_attention_heads": 9,
      "num_hidden_layers": 30, "num_key_value_heads": 3, "pretraining_tp": 1,
      "rms_norm_eps": 1e-05, "rope_interleaved": false, "rope_scaling": null,
      "rope_theta": 100000, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
      "transformers_version": "4.40.1", "use_cache": true, "vocab_size": 49152})");
  const absl::StatusOr<ModelSpec> spec = ParseModelConfig(smollm2, std::nullopt);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->head_dim, 64);
  EXPECT_EQ(spec->rotary.theta, 100000.0);
  EXPECT_TRUE(spec->tied_embeddings);

  const json gpt2 = json::parse(R"({"activation_function": "gelu_new",
      "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0, "bos_token_id": 50256,
      "embd_pdrop": 0, "eos_token_id": 50256, "initializer_range": 0.02,
      "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768,
      "n_head": 12, "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0,
      "summary_activation": null, "summary_first_dropout": 0.1, "summary_proj_to_labels": true,
      "summary_type": "cls_index", "summary_use_proj": true,
      "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
      "vocab_size": 50257})");
  EXPECT_TRUE(ParseModelConfig(gpt2, std::nullopt).ok());
}

TEST(ParseModelConfig, ReadsRotaryParametersInTheNewerForm) {
  const json config =
      With(TinyLlama(), "rope_parameters", {{"rope_type", "default"}, {"rope_theta", 500000.0}});
  const absl::StatusOr<ModelSpec> spec = ParseModelConfig(config, 257);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->rotary.theta, 500000.0);
  EXPECT_THAT(ProblemOf(With(config, "rope_theta", 10000.0)),
              HasSubstr("rope_parameters.rope_theta: 500000 differs from rope_theta (10000)"));
  EXPECT_THAT(ProblemOf(With(TinyLlama(), "rope_parameters",
                             {{"rope_type", "llama3"}, {"rope_theta", 500000.0}})),
              HasSubstr("rope_parameters.rope_type: \"llama3\" is not supported"));
}

TEST(ParseModelConfig, NeedsAKnownFamily) {
  EXPECT_EQ(ProblemOf(json::object()), "model_type: is missing; give one of: llama, gpt2");
  EXPECT_EQ(ProblemOf({{"model_type", "mamba"}}),
            "model_type: \"mamba\" is not a family that is supported; choose one of: llama, gpt2");
  EXPECT_THAT(ProblemOf(json::array()), HasSubstr("is not an object"));
  EXPECT_THAT(ProblemOf({{"model_type", 3}}), HasSubstr("model_type: 3"));
}

TEST(ParseModelConfig, RefusesShapesThatDoNotFit) {
  EXPECT_EQ(ProblemOf(With(With(TinyLlama(), "hidden_size", 100), "num_attention_heads", 3)),
            "hidden_size: 100 is not divisible by num_attention_heads (3); choose a multiple or "
            "give head_dim");
  EXPECT_EQ(ProblemOf(With(TinyGpt2(), "n_head", 5)),
            "n_embd: 64 is not divisible by n_head (5); choose a multiple");
  EXPECT_EQ(ProblemOf(With(TinyLlama(), "num_key_value_heads", 3)),
            "num_key_value_heads: 3 does not divide num_attention_heads (4); choose a divisor");
  EXPECT_THAT(ProblemOf(With(TinyLlama(), "head_dim", 15)), HasSubstr("head_dim: heads are 15"));
  EXPECT_THAT(ProblemOf(With(TinyLlama(), "hidden_size", 12)),
              HasSubstr("hidden_size: heads are 3 wide"));
}

TEST(ParseModelConfig, HeadDimNeedNotBeHiddenSizeOverHeads) {
  const absl::StatusOr<ModelSpec> spec = ParseModelConfig(With(TinyLlama(), "head_dim", 24), 257);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->query_size(), 96);
}

TEST(ParseModelConfig, RefusesNumbersOutOfRangeOrOfTheWrongType) {
  for (const json& bad : std::vector<json>{0, -4, 1.5, "64", true, 1e30, json::array({64})}) {
    EXPECT_THAT(ProblemOf(With(TinyLlama(), "num_hidden_layers", bad)),
                HasSubstr("is not a whole number from 1 to 10000"))
        << bad;
  }
  EXPECT_THAT(ProblemOf(With(TinyLlama(), "rms_norm_eps", 0)), HasSubstr("rms_norm_eps: 0 is not"));
  EXPECT_THAT(ProblemOf(With(TinyLlama(), "rope_theta", "x")), HasSubstr("rope_theta: \"x\""));
  EXPECT_THAT(ProblemOf(With(TinyLlama(), "mlp_bias", 1)),
              HasSubstr("mlp_bias: 1 is not true or false"));
}

TEST(ParseModelConfig, RefusesMathematicsThatIsNotSupportedByName) {
  struct Case {
    json config;
    const char* key;
    json value;
  };
  const std::vector<Case> cases = {
      {TinyLlama(), "rope_scaling", {{"type", "linear"}, {"factor", 2.0}}},
      {TinyLlama(), "attention_dropout", 0.1},
      {TinyLlama(), "hidden_act", "gelu"},
      {TinyLlama(), "partial_rotary_factor", 0.5},
      {TinyLlama(), "quantization_config", {{"bits", 4}}},
      {TinyLlama(), "sliding_window", 128},
      {TinyGpt2(), "activation_function", "relu"},
      {TinyGpt2(), "resid_pdrop", 0.1},
      {TinyGpt2(), "embd_pdrop", 0.1},
      {TinyGpt2(), "attn_pdrop", 0.1},
      {TinyGpt2(), "scale_attn_weights", false},
      {TinyGpt2(), "scale_attn_by_inverse_layer_idx", true},
      {TinyGpt2(), "add_cross_attention", true},
      {TinyGpt2(), "pruned_heads", {{"0", {1}}}},
  };
  for (const Case& c : cases) {
    const std::string problem = ProblemOf(With(c.config, c.key, c.value));
    EXPECT_THAT(problem, ::testing::StartsWith(std::string(c.key) + ": "));
    EXPECT_THAT(problem, HasSubstr("is not supported"));
  }
  EXPECT_EQ(ProblemOf(With(TinyGpt2(), "resid_pdrop", 0.1)),
            "resid_pdrop: 0.1 is not supported (dropout); set it to 0.0 or leave it out");
}

TEST(ParseModelConfig, RefusesUnknownKeysAndSuggestsTheNearest) {
  EXPECT_EQ(ProblemOf(With(TinyLlama(), "hiden_size", 64)),
            "hiden_size: is not a key of a llama config; did you mean hidden_size?");
  EXPECT_EQ(ProblemOf(With(TinyLlama(), "xyzzy", 1)),
            "xyzzy: is not a key of a llama config; remove it");
}

TEST(ParseModelConfig, ReportsAllProblemsAtOnce) {
  json config = TinyLlama();
  config["num_hidden_layers"] = 0;
  config["attention_dropout"] = 0.5;
  config["xyzzy"] = 1;
  std::vector<std::string> fields;
  for (const FieldProblem& problem : ProblemsOf(config)) fields.push_back(problem.field);
  EXPECT_THAT(fields, ElementsAre("num_hidden_layers", "attention_dropout", "xyzzy"));
}

TEST(ParseModelConfig, VocabularyMustHoldTheTokenizers) {
  EXPECT_THAT(ProblemOf(With(TinyLlama(), "vocab_size", 256)),
              HasSubstr("vocab_size: 256 is less than the tokenizer's vocabulary (257)"));
  EXPECT_TRUE(ParseModelConfig(With(TinyLlama(), "vocab_size", 320), 257).ok());
}

TEST(ParseModelConfig, NamesOfOtherFamiliesForTheSameThingMustAgree) {
  const absl::StatusOr<ModelSpec> spec = ParseModelConfig(
      json::parse(R"({"model_type": "gpt2", "hidden_size": 96, "num_attention_heads": 3})"), 257);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->hidden_size, 96);
  EXPECT_THAT(ProblemOf(With(TinyGpt2(), "hidden_size", 96)),
              HasSubstr("hidden_size: 96 differs from n_embd (64)"));
}

TEST(WriteModelConfig, IsReadBackToTheSameSpec) {
  for (const json& config :
       {TinyLlama(), TinyGpt2(), With(TinyLlama(), "head_dim", 24),
        With(TinyLlama(), "tie_word_embeddings", true), With(TinyLlama(), "attention_bias", true),
        With(TinyLlama(), "rope_theta", 123456.5), With(TinyGpt2(), "tie_word_embeddings", false),
        With(TinyGpt2(), "n_inner", 100)}) {
    const absl::StatusOr<ModelSpec> spec = ParseModelConfig(config, 257);
    ASSERT_TRUE(spec.ok()) << spec.status();
    const json written = WriteModelConfig(*spec, {"bfloat16", 256});
    const absl::StatusOr<ModelSpec> again = ParseModelConfig(written, std::nullopt);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*spec, *again) << written;
  }
}

TEST(WriteModelConfig, SaysWhatTransformersNeeds) {
  const absl::StatusOr<ModelSpec> spec = ParseModelConfig(TinyGpt2(), 257);
  ASSERT_TRUE(spec.ok());
  const json config = WriteModelConfig(*spec, {"bfloat16", 256});
  EXPECT_EQ(config["architectures"], json::array({"GPT2LMHeadModel"}));
  EXPECT_EQ(config["model_type"], "gpt2");
  EXPECT_EQ(config["torch_dtype"], "bfloat16");
  EXPECT_EQ(config["eos_token_id"], 256);
  EXPECT_EQ(config["activation_function"], "gelu_new");
  EXPECT_EQ(config["resid_pdrop"], 0.0);
}

}  // namespace
}  // namespace millrace
