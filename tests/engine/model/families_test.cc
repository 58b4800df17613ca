#include "engine/model/families.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
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

TEST(ParseModelConfig, ReadsRotaryParametersInBothForms) {
  const json newer = With(TinyLlama(), "rope_parameters",
                          {{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 500000.0}});
  const absl::StatusOr<ModelSpec> spec = ParseModelConfig(newer, 257);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->rotary.theta, 500000.0);
  EXPECT_EQ(spec->rotary.scaling, RotaryScaling::kLinear);
  EXPECT_EQ(spec->rotary.factor, 4.0);
  const json older = With(With(TinyLlama(), "rope_theta", 500000), "rope_scaling",
                          {{"type", "linear"}, {"factor", 4}});
  EXPECT_EQ(*ParseModelConfig(older, 257), *spec);
  EXPECT_EQ(*ParseModelConfig(With(older, "rope_parameters", newer["rope_parameters"]), 257),
            *spec);
}

TEST(ParseModelConfig, RotaryParametersInTwoPlacesMustAgree) {
  const json config =
      With(TinyLlama(), "rope_parameters", {{"rope_type", "default"}, {"rope_theta", 500000.0}});
  EXPECT_EQ(ProblemOf(With(config, "rope_theta", 10000.0)),
            "rope_parameters.rope_theta: 500000.0 differs from rope_theta (10000.0); give one of "
            "them");
  EXPECT_THAT(ProblemOf(With(config, "rope_scaling", {{"type", "linear"}, {"factor", 2.0}})),
              HasSubstr("rope_parameters.rope_type: \"default\" differs from rope_scaling.type "
                        "(\"linear\")"));
}

TEST(ParseModelConfig, RefusesRotaryParametersThatItDoesNotCompute) {
  struct Case {
    json config;
    json scaling;
    const char* problem;
  };
  const json neox = json::parse(R"({"model_type": "gpt_neox", "hidden_size": 64,
      "num_attention_heads": 4, "num_hidden_layers": 2, "rotary_pct": 0.5})");
  const json phi3 = json::parse(R"({"model_type": "phi3", "hidden_size": 16,
      "num_attention_heads": 4, "num_hidden_layers": 2})");
  const std::vector<Case> cases = {
      {TinyLlama(), {{"rope_type", "mrope"}}, "rope_scaling.rope_type: \"mrope\" is not supported"},
      {TinyLlama(), {{"type", "linear"}}, "rope_scaling.factor: is missing"},
      {TinyLlama(), {{"type", "linear"}, {"factor", 0.5}}, "rope_scaling.factor: 0.5 is not"},
      {TinyLlama(),
       {{"type", "linear"}, {"factor", 2}, {"beta_fast", 3}},
       "rope_scaling.beta_fast: is not a parameter of rotary embedding \"linear\"; remove it"},
      {TinyLlama(),
       {{"rope_type", "llama3"}, {"factor", 2}, {"low_freq_factor", 4}, {"high_freq_factor", 4}},
       "rope_scaling.high_freq_factor: 4 is not more than low_freq_factor (4)"},
      {TinyLlama(),
       {{"rope_type", "yarn"}, {"factor", 2}, {"truncate", 1}},
       "rope_scaling.truncate: 1 is not true or false"},
      {TinyLlama(),
       {{"rope_type", "longrope"}, {"long_factor", {1, 2}}, {"short_factor", {1}}},
       "is not a list of 8 numbers"},
      {TinyLlama(),
       {{"partial_rotary_factor", 0.5}},
       "rope_scaling.partial_rotary_factor: 0.5 is not supported (partial rotary embedding)"},
      {TinyLlama(), "linear", "rope_scaling: \"linear\" is not an object"},
      {With(neox, "rotary_pct", 0.2), nullptr, "rotary_pct: makes 3 of a head's 16 elements turn"},
      {phi3, {{"type", "linear"}, {"factor", 2}}, "choose one of default, longrope"},
      {phi3,
       {{"type", "su"},
        {"short_factor", {1, 1}},
        {"long_factor", {1, 1}},
        {"original_max_position_embeddings", 32}},
       "rope_scaling.original_max_position_embeddings: 32 differs from "
       "original_max_position_embeddings (4096)"},
  };
  for (const Case& c : cases) {
    const std::vector<FieldProblem> problems =
        ProblemsOf(With(c.config, "rope_scaling", c.scaling));
    ASSERT_FALSE(problems.empty()) << c.scaling;
    EXPECT_THAT(std::string(StatusOf(problems).message()), HasSubstr(c.problem));
  }
}

TEST(ParseModelConfig, SequencesMayBeAsLongAsScalingMakesThem) {
  const auto longest = [](const json& scaling) {
    const absl::StatusOr<ModelSpec> spec =
        ParseModelConfig(With(TinyLlama(), "rope_scaling", scaling), 257);
    EXPECT_TRUE(spec.ok()) << spec.status();
    return spec->max_positions;
  };
  EXPECT_EQ(longest(nullptr), 256);
  EXPECT_EQ(longest({{"type", "dynamic"}, {"factor", 4}}), 1024);
  EXPECT_EQ(longest({{"type", "yarn"}, {"factor", 4}}), 1024);
  EXPECT_EQ(longest({{"type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 64}}),
            256);
  EXPECT_EQ(longest({{"type", "linear"}, {"factor", 4}}), 256);
}

json TinyGemma(const char* model_type) {
  return {{"model_type", model_type}, {"hidden_size", 64},        {"num_hidden_layers", 4},
          {"num_attention_heads", 4}, {"num_key_value_heads", 2}, {"head_dim", 16}};
}

TEST(ParseModelConfig, LayerTypesAreListedOrFollowFromOlderKeys) {
  const auto windowed = [](const json& config) {
    const absl::StatusOr<ModelSpec> spec = ParseModelConfig(config, 257);
    EXPECT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->window > 0, !spec->windowed.empty());
    return spec->windowed;
  };
  const json qwen = json::parse(R"({"model_type": "qwen2", "hidden_size": 64,
      "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 3,
      "sliding_window": 32, "max_window_layers": 2})");
  const json on = With(qwen, "use_sliding_window", true);
  EXPECT_THAT(windowed(qwen), ElementsAre());
  EXPECT_THAT(windowed(on), ElementsAre(false, false, true));
  EXPECT_THAT(
      windowed(With(on, "layer_types", {"sliding_attention", "full_attention", "full_attention"})),
      ElementsAre(true, false, false));
  EXPECT_THAT(windowed(With(on, "max_window_layers", 3)), ElementsAre());
  EXPECT_THAT(windowed(TinyGemma("gemma2")), ElementsAre(true, false, true, false));
  EXPECT_THAT(windowed(TinyGemma("gemma3_text")), ElementsAre(true, true, true, true));
  EXPECT_THAT(windowed(With(TinyGemma("gemma3_text"), "sliding_window_pattern", 3)),
              ElementsAre(true, true, false, true));
  EXPECT_THAT(windowed({{"model_type", "mistral"}, {"num_hidden_layers", 2}}),
              ElementsAre(true, true));
  EXPECT_THAT(
      windowed({{"model_type", "mistral"}, {"num_hidden_layers", 2}, {"sliding_window", nullptr}}),
      ElementsAre());

  EXPECT_THAT(ProblemOf(With(qwen, "layer_types", {"sliding_attention"})),
              HasSubstr("layer_types: [\"sliding_attention\"] is not a list of one type for each "
                        "layer (num_hidden_layers: 3)"));
  EXPECT_THAT(ProblemOf(With(qwen, "layer_types",
                             {"sliding_attention", "full_attention", "full_attention"})),
              HasSubstr("use_sliding_window: is false, but layer_types has sliding_attention"));
  EXPECT_THAT(
      ProblemOf(With(on, "layer_types", {"linear_attention", "full_attention", "full_attention"})),
      HasSubstr("\"linear_attention\" of layer 0 is not supported"));
  EXPECT_THAT(ProblemOf(With(TinyGemma("gemma2"), "sliding_window", nullptr)),
              HasSubstr("sliding_window: is null, but there are layers of sliding_attention"));
}

TEST(ParseModelConfig, TakesTheNamesOfActivations) {
  for (const auto& [name, kind] : {std::pair{"silu", ActivationKind::kSilu},
                                   {"swish", ActivationKind::kSilu},
                                   {"gelu", ActivationKind::kGelu},
                                   {"gelu_new", ActivationKind::kGeluTanh},
                                   {"gelu_fast", ActivationKind::kGeluTanh},
                                   {"gelu_pytorch_tanh", ActivationKind::kGeluTanh},
                                   {"relu", ActivationKind::kRelu}}) {
    for (const auto& [config, key] : {std::pair{TinyLlama(), "hidden_act"},
                                      {TinyGpt2(), "activation_function"},
                                      {TinyGemma("gemma2"), "hidden_activation"}}) {
      const absl::StatusOr<ModelSpec> spec = ParseModelConfig(With(config, key, name), 257);
      ASSERT_TRUE(spec.ok()) << spec.status();
      EXPECT_EQ(spec->activation, kind) << name;
    }
  }
  EXPECT_THAT(
      ProblemOf(With(TinyGpt2(), "activation_function", "quick_gelu")),
      HasSubstr("activation_function: \"quick_gelu\" is not supported; choose one of silu"));
  EXPECT_THAT(ProblemOf(With(TinyGemma("gemma2"), "hidden_act", "relu")),
              HasSubstr("hidden_act: \"relu\" differs from hidden_activation"));
}

TEST(ParseModelConfig, DropoutIsRefusedOrNoted) {
  const json config = With(TinyGpt2(), "resid_pdrop", 0.1);
  EXPECT_EQ(ProblemOf(config),
            "resid_pdrop: 0.1 is not supported (dropout); set it to 0.0 or leave it out");
  std::vector<FieldProblem> notes;
  const absl::StatusOr<ModelSpec> spec = ParseModelConfig(config, 257, nullptr, &notes);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(*spec, *ParseModelConfig(TinyGpt2(), 257));
  EXPECT_EQ(StatusOf(notes).message(), "resid_pdrop: 0.1: training goes without dropout");
}

TEST(ParseModelConfig, NeedsAKnownFamily) {
  EXPECT_EQ(ProblemOf(json::object()),
            "model_type: is missing; give one of: llama, gpt2, gpt_neox, mistral, qwen2, qwen3, "
            "gemma2, gemma3_text, phi3, olmo2");
  EXPECT_EQ(ProblemOf({{"model_type", "mamba"}}),
            "model_type: \"mamba\" is not a family that is supported; choose one of: " +
                absl::StrJoin(FamilyNames(), ", "));
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
      {TinyLlama(), "attention_dropout", 0.1},
      {TinyLlama(), "hidden_act", "mish"},
      {TinyLlama(), "partial_rotary_factor", 0.5},
      {TinyLlama(), "quantization_config", {{"bits", 4}}},
      {TinyLlama(), "sliding_window", 128},
      {TinyGpt2(), "resid_pdrop", 0.1},
      {TinyGpt2(), "embd_pdrop", 0.1},
      {TinyGpt2(), "attn_pdrop", 0.1},
      {TinyLlama(), "per_layer_config", {{"0", {{"mlp_bias", true}}}}},
      {TinyGemma("gemma2"), "use_bidirectional_attention", true},
      {TinyGemma("gemma3_text"), "attn_logit_softcapping", 30.0},
      {TinyGpt2(), "add_cross_attention", true},
      {TinyGpt2(), "pruned_heads", {{"0", {1}}}},
  };
  for (const Case& c : cases) {
    const std::string problem = ProblemOf(With(c.config, c.key, c.value));
    EXPECT_THAT(problem, ::testing::StartsWith(std::string(c.key) + ": "));
    EXPECT_THAT(problem, HasSubstr("is not supported"));
  }
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

TEST(WriteModelConfig, PartsOfHeadsThatAreNoWholeFractionsAreReadBack) {
  // 30 / 44, times 44, is less than 30 in double precision.
  const json config = json::parse(R"({"model_type": "phi3", "hidden_size": 88,
      "num_attention_heads": 2, "num_hidden_layers": 1, "partial_rotary_factor": 0.69})");
  const absl::StatusOr<ModelSpec> spec = ParseModelConfig(config, 257);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->rotary_width, 30);
  EXPECT_EQ(*ParseModelConfig(WriteModelConfig(*spec), std::nullopt), *spec);
}

TEST(WriteModelConfig, SaysWhatTransformersNeeds) {
  const absl::StatusOr<ModelSpec> spec = ParseModelConfig(TinyGpt2(), 257);
  ASSERT_TRUE(spec.ok());
  const json config = WriteModelConfig(*spec, {"bfloat16", 256});
  EXPECT_EQ(config["architectures"], json::array({"GPT2LMHeadModel"}));
  EXPECT_EQ(config["model_type"], "gpt2");
  EXPECT_EQ(config["torch_dtype"], "bfloat16");
  EXPECT_EQ(config["eos_token_id"], 256);
  EXPECT_EQ(config["bos_token_id"], 256);
  EXPECT_EQ(
      WriteModelConfig(*spec, {.end_of_document = 256, .begin_of_document = 255})["bos_token_id"],
      255);
  EXPECT_EQ(config["activation_function"], "gelu_new");
  EXPECT_EQ(config["resid_pdrop"], 0.0);
}

}  // namespace
}  // namespace millrace
