#include "engine/model/layer_types.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

using nlohmann::json;

constexpr int64_t kMostWindow = int64_t{1} << 30;
constexpr int64_t kMostLayers = 1 << 20;
constexpr char kWindowed[] = "sliding_attention", kFull[] = "full_attention";
// Those of the classes in transformers.
constexpr int64_t kMaxWindowLayers = 28, kSlidingWindowPattern = 6;

int64_t WholeOr(ConfigReader& reader, absl::string_view key, int64_t fallback, int64_t least,
                int64_t most) {
  const json* value = reader.Find(key);
  return value ? reader.Whole(*value, key, least, most) : fallback;
}

std::vector<bool> WindowedByPattern(int64_t layers, int64_t pattern) {
  std::vector<bool> windowed(layers);
  for (int64_t i = 0; i < layers; ++i) windowed[i] = (i + 1) % pattern != 0;
  return windowed;
}

std::vector<bool> WindowedFrom(int64_t layers, int64_t first) {
  std::vector<bool> windowed(layers);
  for (int64_t i = 0; i < layers; ++i) windowed[i] = i >= first;
  return windowed;
}

// Without `layer_types`.
std::vector<bool> WindowedByRule(WindowRule rule, int64_t layers, ConfigReader& reader) {
  switch (rule) {
    case WindowRule::kNone:
      return {};
    case WindowRule::kEveryLayer:
      return std::vector<bool>(layers, true);
    case WindowRule::kLastLayers:
      return WindowedFrom(layers,
                          WholeOr(reader, "max_window_layers", kMaxWindowLayers, 0, kMostLayers));
    case WindowRule::kAlternating:
      return WindowedByPattern(layers, 2);
    case WindowRule::kPattern:
      return WindowedByPattern(
          layers, WholeOr(reader, "sliding_window_pattern", kSlidingWindowPattern, 1, kMostLayers));
  }
  return {};
}

std::vector<bool> ReadLayerTypes(const json& types, int64_t layers, ConfigReader& reader) {
  std::vector<bool> windowed;
  if (!types.is_array() || static_cast<int64_t>(types.size()) != layers) {
    reader.Complain("layer_types", absl::StrCat(Show(types),
                                                " is not a list of one type for each layer "
                                                "(num_hidden_layers: ",
                                                layers, ")"));
    return windowed;
  }
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] != kWindowed && types[i] != kFull) {
      reader.Complain("layer_types",
                      absl::StrCat(Show(types[i]), " of layer ", i, " is not supported; choose ",
                                   kFull, " or ", kWindowed));
      return windowed;
    }
    windowed.push_back(types[i] == kWindowed);
  }
  return windowed;
}

bool HasLayerTypes(WindowRule rule) {
  return rule == WindowRule::kLastLayers || rule == WindowRule::kAlternating ||
         rule == WindowRule::kPattern;
}

bool Any(const std::vector<bool>& windowed) {
  return std::find(windowed.begin(), windowed.end(), true) != windowed.end();
}

}  // namespace

std::vector<absl::string_view> WindowKeyNames(const WindowKeys& keys) {
  switch (keys.rule) {
    case WindowRule::kNone:
      return {};
    case WindowRule::kEveryLayer:
      return {"sliding_window"};
    case WindowRule::kLastLayers:
      return {"sliding_window", "layer_types", "use_sliding_window", "max_window_layers"};
    case WindowRule::kAlternating:
      return {"sliding_window", "layer_types"};
    case WindowRule::kPattern:
      return {"sliding_window", "layer_types", "sliding_window_pattern", "_sliding_window_pattern"};
  }
  return {};
}

void ReadWindow(const WindowKeys& keys, ConfigReader& reader, ModelSpec& spec) {
  if (keys.rule == WindowRule::kNone) return;
  int64_t window = 0;
  if (!reader.IsNull("sliding_window")) {
    window = WholeOr(reader, "sliding_window", keys.fallback, 1, kMostWindow);
  }
  const bool is_off =
      keys.rule == WindowRule::kLastLayers && !reader.Switch("use_sliding_window", false);
  if (is_off) window = 0;

  const json* types = HasLayerTypes(keys.rule) ? reader.Find("layer_types") : nullptr;
  std::vector<bool> windowed;
  if (types) {
    windowed = ReadLayerTypes(*types, spec.num_layers, reader);
  } else if (window > 0 || keys.rule == WindowRule::kAlternating ||
             keys.rule == WindowRule::kPattern) {
    windowed = WindowedByRule(keys.rule, spec.num_layers, reader);
  }
  if (!Any(windowed)) return;
  if (window == 0) {
    reader.Complain(is_off ? "use_sliding_window" : "sliding_window",
                    absl::StrCat(is_off ? "is false" : "is null", ", but ",
                                 types ? "layer_types has " : "there are layers of ", kWindowed,
                                 "; give the window, or make all layers ", kFull));
    return;
  }
  spec.window = window;
  spec.windowed = std::move(windowed);
}

void WriteWindow(const WindowKeys& keys, const ModelSpec& spec, json& config) {
  if (keys.rule == WindowRule::kNone) return;
  if (spec.window > 0) {
    config["sliding_window"] = spec.window;
  } else if (keys.rule == WindowRule::kEveryLayer || keys.rule == WindowRule::kLastLayers) {
    config["sliding_window"] = nullptr;
  } else {
    config["sliding_window"] = keys.fallback;  // transformers needs one, even unused
  }
  if (!HasLayerTypes(keys.rule)) return;

  std::vector<bool> windowed = spec.windowed;
  windowed.resize(spec.num_layers);
  json types = json::array();
  for (bool is_windowed : windowed) types.push_back(is_windowed ? kWindowed : kFull);
  config["layer_types"] = std::move(types);
  if (keys.rule == WindowRule::kLastLayers) {
    config["use_sliding_window"] = spec.window > 0;
    config["max_window_layers"] =
        std::find(windowed.begin(), windowed.end(), true) - windowed.begin();
  }
  if (keys.rule == WindowRule::kPattern) {
    for (int64_t pattern = spec.num_layers + 1; pattern >= 1; --pattern) {
      if (windowed != WindowedByPattern(spec.num_layers, pattern)) continue;
      config["sliding_window_pattern"] = pattern;
    }
  }
}

}  // namespace millrace
