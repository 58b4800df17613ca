// The models in this folder, for tests that are made once for each.
#ifndef MILLRACE_TESTS_GOLDEN_GOLDEN_NAMES_H_
#define MILLRACE_TESTS_GOLDEN_GOLDEN_NAMES_H_

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace millrace {

inline constexpr char kGoldenRoot[] = "tests/golden/";

// Models whose family or settings the engine does not compute yet.
inline const std::vector<std::string>& NotYetSupported() {
  static const auto* names = new std::vector<std::string>{
      "gemma2",
      "gemma2_uncapped",
      "gemma3_text",
      "gemma3_text_capped",
      "gemma3_text_yarn",
      "gpt2_layer_scaling",
      "gpt2_silu",
      "gpt2_unscaled_relu",
      "gpt_neox",
      "gpt_neox_linear",
      "gpt_neox_serial",
      "llama_dynamic",
      "llama_gelu",
      "llama_gelu_tanh",
      "llama_linear",
      "llama_llama3",
      "llama_relu",
      "llama_yarn",
      "llama_yarn_factor",
      "llama_yarn_mscale",
      "mistral",
      "mistral_full",
      "olmo2",
      "olmo2_bias",
      "phi3",
      "phi3_longrope_factor",
      "phi3_longrope_long",
      "phi3_longrope_short",
      "phi3_partial",
      "qwen2",
      "qwen2_window",
      "qwen2_yarn",
      "qwen3",
      "qwen3_window",
  };
  return *names;
}

// The folders of models in tests/golden, in order.
inline std::vector<std::string> AllGoldenNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kGoldenRoot)) {
    if (std::filesystem::exists(entry.path() / "golden.safetensors")) {
      names.push_back(entry.path().filename());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Those that the engine computes.
inline std::vector<std::string> GoldenNames() {
  std::vector<std::string> names = AllGoldenNames();
  std::erase_if(names, [](const std::string& name) {
    const auto& left_out = NotYetSupported();
    return std::find(left_out.begin(), left_out.end(), name) != left_out.end();
  });
  return names;
}

}  // namespace millrace

#endif  // MILLRACE_TESTS_GOLDEN_GOLDEN_NAMES_H_
