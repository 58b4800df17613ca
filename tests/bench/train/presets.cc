#include "tests/bench/train/presets.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/model/families.h"

namespace millrace {
namespace {

struct Preset {
  const char* name;
  const char* config;
};

constexpr Preset kPresets[] = {
    // The GPT-2 of Radford et al. 2019, smallest size.
    {"gpt2-124m", R"({"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_layer": 12,
                      "n_head": 12, "n_positions": 1024})"},
    {"llama-125m",
     R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 768,
         "intermediate_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 12,
         "num_key_value_heads": 12, "max_position_embeddings": 2048,
         "tie_word_embeddings": true})"},
    // The shape of TinyLlama (Zhang et al. 2024).
    {"llama-1.1b",
     R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 2048,
         "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32,
         "num_key_value_heads": 4, "max_position_embeddings": 2048})"},
    // The shape of Phi-3-mini (Abdin et al. 2024).
    {"llama-3.8b",
     R"({"model_type": "llama", "vocab_size": 32064, "hidden_size": 3072,
         "intermediate_size": 8192, "num_hidden_layers": 32, "num_attention_heads": 32,
         "num_key_value_heads": 32, "max_position_embeddings": 4096})"},
    {"llama-tiny",
     R"({"model_type": "llama", "vocab_size": 257, "hidden_size": 256, "intermediate_size": 688,
         "num_hidden_layers": 6, "num_attention_heads": 8, "max_position_embeddings": 2048})"},
};

}  // namespace

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.push_back(preset.name);
  return names;
}

absl::StatusOr<ModelSpec> PresetModel(const std::string& name) {
  for (const Preset& preset : kPresets) {
    if (name == preset.name) {
      return ParseModelConfig(nlohmann::json::parse(preset.config), std::nullopt);
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("--preset: no preset is called ", name,
                                                 "; take one of ",
                                                 absl::StrJoin(PresetNames(), ", ")));
}

}  // namespace millrace
