// The architectures of GGUF files that are read and written, and what keys of their metadata say in
// a config.json, the same way both ways.
#ifndef MILLRACE_ENGINE_MODEL_GGUF_ARCHITECTURES_H_
#define MILLRACE_ENGINE_MODEL_GGUF_ARCHITECTURES_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace millrace {

enum class GgufNeed : uint8_t { kRequired, kOptional };

// A key of the metadata, without its architecture, and of the config.
struct GgufKey {
  absl::string_view gguf, hub;
  GgufNeed need = GgufNeed::kRequired;
};

struct GgufArchitecture {
  absl::string_view name, model_type;
  std::vector<GgufKey> wholes, reals;
  nlohmann::json constants;  // what the architecture implies
  // Keys of the config that say whether a tensor is there.
  std::vector<std::pair<absl::string_view, absl::string_view>> switches;
};

const std::vector<GgufArchitecture>& GgufArchitectureTable();

// The one in whose files models of this family are; nullptr where there is none. Mistral's are
// llama files.
const GgufArchitecture* GgufArchitectureOf(absl::string_view model_type);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_GGUF_ARCHITECTURES_H_
