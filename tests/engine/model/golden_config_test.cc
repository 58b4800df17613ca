// Configs as transformers writes them, and all that they may say: every field of each family's
// config class is read, refused by name, or without effect for a reason that is written here.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/file.h"
#include "engine/model/families.h"
#include "nlohmann/json.hpp"
#include "tests/golden/golden_names.h"

namespace millrace {
namespace {

using nlohmann::json;

json ReadJson(const std::string& path) { return json::parse(*ReadFile(kGoldenRoot + path)); }

// Whatever they say, the model computes the same.
const std::map<std::string, std::string>& WithoutEffect() {
  static const auto* reasons = new std::map<std::string, std::string>{
      {"_commit_hash", "where the files came from"},
      {"architectures", "the task; the tensors tell what there is"},
      {"attn_implementation", "which kernel"},
      {"bos_token_id", "which tokens mark texts: data and generation"},
      {"chunk_size_feed_forward", "no family here does so"},
      {"classifier_dropout", "another task's head"},
      {"dtype", "the tensors tell their types"},
      {"eos_token_id", "which tokens mark texts: data and generation"},
      {"experts_implementation", "which kernel"},
      {"id2label", "another task's head"},
      {"initializer_range", "initial weights; read all the same"},
      {"is_decoder", "beside an encoder, which is refused"},
      {"label2id", "another task's head"},
      {"max_window_layers", "layer_types are given, and windows refused without"},
      {"name_or_path", "where the files came from"},
      {"num_labels", "another task's head"},
      {"original_max_position_embeddings", "scaled rotary embeddings, which this config has not"},
      {"output_attentions", "what else to return"},
      {"output_hidden_states", "what else to return"},
      {"pad_token_id", "which tokens mark texts: data and generation"},
      {"pretraining_tp", "how products were once divided among devices"},
      {"problem_type", "another task's head"},
      {"reorder_and_upcast_attn", "rounding, and everything here sums in float32"},
      {"return_dict", "what else to return"},
      {"summary_activation", "another task's head"},
      {"summary_first_dropout", "another task's head"},
      {"summary_proj_to_labels", "another task's head"},
      {"summary_type", "another task's head"},
      {"summary_use_proj", "another task's head"},
      {"torch_dtype", "the tensors tell their types"},
      {"transformers_version", "who wrote the file"},
      {"use_cache", "how to generate"},
  };
  return *reasons;
}

// A value that means something else, for keys whose type does not tell one.
json Other(const std::string& key, const json& value) {
  static const auto* others = new std::map<std::string, json>{
      {"attn_logit_softcapping", 3.0},
      {"final_logit_softcapping", 3.0},
      {"head_dim", 2},
      {"n_inner", 7},
      {"num_attention_heads", 1},
      {"partial_rotary_factor", 0.125},
      {"per_layer_config", {{"0", {{"intermediate_size", 5}}}}},
      {"rope_local_base_freq", 77.0},
      {"rope_parameters", {{"rope_type", "linear"}, {"factor", 7.0}, {"rope_theta", 77.0}}},
      {"rope_scaling", {{"rope_type", "linear"}, {"factor", 7.0}}},
      {"rope_theta", 77.0},
      {"rotary_emb_base", 77.0},
      {"rotary_pct", 0.125},
      {"sliding_window", 3},
      {"sliding_window_pattern", 2},
      {"use_bidirectional_attention", true},
  };
  if (const auto found = others->find(key); found != others->end()) return found->second;
  if (key == "num_key_value_heads") return value == 1 ? 2 : 1;
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number_integer()) return 2 * value.get<int64_t>();
  if (value.is_number()) return 0.5 * value.get<double>() + 0.25;
  if (value.is_array() && !value.empty()) {
    json other = value;
    other[0] = other[0] == "full_attention" ? "sliding_attention" : "full_attention";
    return other;
  }
  return "other";
}

class ConfigFieldsTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string model = family_ == "llama"   ? "llama_gqa"
                              : family_ == "qwen2" ? "qwen2_window"
                              : family_ == "qwen3" ? "qwen3_window"
                                                   : family_;
    config_ = ReadJson(model + "/config.json");
    legacy_ = ReadJson(model + "/legacy.json");
    const absl::StatusOr<ModelSpec> spec = ParseModelConfig(config_, std::nullopt);
    ASSERT_TRUE(spec.ok()) << spec.status();
    spec_ = *spec;
  }

  void ExpectReadOrRefused(const json& config, const std::string& key, const json& value) {
    json changed = config;
    changed[key] = Other(key, value);
    const absl::StatusOr<ModelSpec> spec = ParseModelConfig(changed, std::nullopt);
    const bool unaffected = spec.ok() && *spec == spec_;
    if (!spec.ok()) {
      EXPECT_TRUE(absl::StrContains(spec.status().message(), key)) << key << ": " << spec.status();
    }
    if (unaffected) {
      EXPECT_TRUE(WithoutEffect().contains(key))
          << key << " = " << changed[key] << " is taken and changes nothing";
    }
  }

  const std::string family_ = GetParam();
  const json fields_ = ReadJson("configs/fields.json").at(family_);
  json config_, legacy_;
  ModelSpec spec_;
};

TEST_P(ConfigFieldsTest, EveryFieldIsReadOrRefusedOrKnownToHaveNoEffect) {
  for (const auto& [key, fallback] : fields_.at("fields").items()) {
    ExpectReadOrRefused(config_, key, config_.contains(key) ? config_[key] : fallback);
  }
}

TEST_P(ConfigFieldsTest, SoIsEveryKeyOfOlderFiles) {
  for (const std::string key : fields_.at("older")) {
    ExpectReadOrRefused(legacy_, key, legacy_.contains(key) ? legacy_[key] : json());
  }
}

TEST_P(ConfigFieldsTest, WhatIsLeftOutIsWhatTheClassHas) {
  for (const auto& [key, fallback] : fields_.at("fields").items()) {
    json without = config_, with = config_;
    without.erase(key);
    with[key] = fallback;
    const absl::StatusOr<ModelSpec> absent = ParseModelConfig(without, 37);
    const absl::StatusOr<ModelSpec> given = ParseModelConfig(with, 37);
    if (key == "vocab_size") continue;  // the tokenizer's stands in
    if (!given.ok()) continue;          // refused: at worst what is left out is, too
    EXPECT_TRUE(absent.ok()) << key << ": " << absent.status();
    EXPECT_TRUE(absent.ok() && *absent == *given) << key << " is not " << fallback;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ConfigFieldsTest, testing::ValuesIn(FamilyNames()),
                         [](const auto& info) { return info.param; });

// What no model here computes: a key of the config, or of its rotary embedding, and a value.
struct Refusal {
  const char* model;
  const char* key;
  json value;
};

TEST(GoldenConfigs, WhatIsNotComputedIsRefusedByName) {
  const std::vector<Refusal> refusals = {
      {"gpt2", "activation_function", "quick_gelu"},
      {"gpt2", "activation_function", "mish"},
      {"gpt2", "add_cross_attention", true},
      {"gpt_neox", "hidden_act", "relu2"},
      {"gpt_neox", "head_dim", 4},
      {"gpt_neox", "rope_parameters.partial_rotary_factor", 0.4},  // 3 of 8 dimensions
      {"llama_gqa", "hidden_act", "tanh"},
      {"llama_gqa", "layer_types", {"full_attention", "sliding_attention"}},
      {"llama_gqa", "sliding_window", 8},
      {"llama_gqa", "partial_rotary_factor", 0.5},
      {"llama_gqa", "per_layer_config", {{"1", {{"intermediate_size", 12}}}}},
      {"llama_gqa", "rope_parameters.rope_type", "proportional"},
      {"llama_gqa", "rope_parameters.rope_type", "mrope"},
      {"llama_gqa", "rope_parameters.mrope_section", {1, 1, 1}},
      {"llama_gqa", "quantization_config", {{"bits", 4}}},
      {"llama_llama3", "rope_parameters.factor", "4"},
      {"llama_yarn", "rope_parameters.typo", 1.0},
      {"mistral", "layer_types", {"full_attention", "sliding_attention"}},
      {"qwen2_window", "layer_types", {"full_attention", "chunked_attention", "full_attention"}},
      {"qwen2_window", "layer_types", {"full_attention", "full_attention"}},
      {"gemma2", "use_bidirectional_attention", true},
      {"gemma2", "hidden_activation", "quick_gelu"},
      {"gemma3_text", "use_bidirectional_attention", true},
      {"gemma3_text", "attn_logit_softcapping", 30.0},  // transformers never applies it
      {"gemma3_text_yarn", "rope_parameters.full_attention.truncate", false},  // nor this one
      {"phi3", "rope_parameters.partial_rotary_factor", 0.8},                  // 3 of 4 dimensions
      {"phi3_longrope_long", "rope_parameters.long_factor", {1.0, 2.0}},
      {"olmo2", "clip_qkv", 8.0},
  };
  for (const Refusal& refusal : refusals) {
    json config = ReadJson(absl::StrCat(refusal.model, "/config.json"));
    json* owner = &config;
    std::vector<std::string> path = absl::StrSplit(refusal.key, '.');
    for (size_t i = 0; i + 1 < path.size(); ++i) owner = &(*owner)[path[i]];
    (*owner)[path.back()] = refusal.value;
    const absl::StatusOr<ModelSpec> spec = ParseModelConfig(config, std::nullopt);
    const std::string what =
        absl::StrCat(refusal.model, " with ", refusal.key, " ", refusal.value.dump());
    if (spec.ok()) {
      ADD_FAILURE() << what << " is taken";
      continue;
    }
    EXPECT_TRUE(absl::StrContains(spec.status().message(), path.back()))
        << what << ": " << spec.status();
  }
}

class GoldenConfigTest : public testing::TestWithParam<std::string> {};

TEST_P(GoldenConfigTest, MeansTheSameAsInTheFormOfOlderFiles) {
  const absl::StatusOr<ModelSpec> spec =
      ParseModelConfig(ReadJson(GetParam() + "/config.json"), std::nullopt);
  ASSERT_TRUE(spec.ok()) << spec.status();
  const absl::StatusOr<ModelSpec> legacy =
      ParseModelConfig(ReadJson(GetParam() + "/legacy.json"), std::nullopt);
  ASSERT_TRUE(legacy.ok()) << legacy.status();
  EXPECT_TRUE(*spec == *legacy);
}

TEST_P(GoldenConfigTest, IsReadBackAsWritten) {
  const absl::StatusOr<ModelSpec> spec =
      ParseModelConfig(ReadJson(GetParam() + "/config.json"), std::nullopt);
  ASSERT_TRUE(spec.ok()) << spec.status();
  const json written = WriteModelConfig(*spec);
  const absl::StatusOr<ModelSpec> again = ParseModelConfig(written, std::nullopt);
  ASSERT_TRUE(again.ok()) << again.status() << "\n" << written;
  EXPECT_TRUE(*spec == *again) << written;
  // phi3's class has a padding token of 32000, and fails to load with fewer.
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    EXPECT_TRUE(written.at(key).is_null()) << key;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenConfigTest, testing::ValuesIn(GoldenNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace millrace
