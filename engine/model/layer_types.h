// Which layers of a model see a window of the last tokens only, as a config.json says it:
// `sliding_window`, `layer_types`, and the keys that stood for these before.
#ifndef MILLRACE_ENGINE_MODEL_LAYER_TYPES_H_
#define MILLRACE_ENGINE_MODEL_LAYER_TYPES_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/model/config_reader.h"
#include "engine/model/model_spec.h"
#include "nlohmann/json.hpp"

namespace millrace {

enum class WindowRule : uint8_t {
  kNone,         // no key, no window
  kEveryLayer,   // `sliding_window`, null for none
  kLastLayers,   // `use_sliding_window`; `layer_types`, or those from `max_window_layers` on
  kAlternating,  // `layer_types`, or the first, third, ...
  kPattern,      // `layer_types`, or all but each `sliding_window_pattern`th
};

struct WindowKeys {
  WindowRule rule = WindowRule::kNone;
  int64_t fallback = 0;  // of `sliding_window`; 0: none
};

// Keys that `keys` read.
std::vector<absl::string_view> WindowKeyNames(const WindowKeys& keys);

// Sets `window` and `windowed` of a spec whose num_layers is known.
void ReadWindow(const WindowKeys& keys, ConfigReader& reader, ModelSpec& spec);

// Adds what ReadWindow reads back, with the older keys where they can say it.
void WriteWindow(const WindowKeys& keys, const ModelSpec& spec, nlohmann::json& config);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_LAYER_TYPES_H_
