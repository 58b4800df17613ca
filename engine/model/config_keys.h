// The table of model families: for each, the keys of its config.json, what they mean to a
// ModelSpec, their defaults (those of the family's class in transformers) and limits. A new family
// is a new row here, and its tensors' names in slab_layout.cc.
#ifndef MILLRACE_ENGINE_MODEL_CONFIG_KEYS_H_
#define MILLRACE_ENGINE_MODEL_CONFIG_KEYS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/model/model_spec.h"
#include "nlohmann/json.hpp"

namespace millrace {

inline constexpr double kLeastRotaryTheta = 1.0, kMostRotaryTheta = 1e12;

// A positive whole number.
struct WholeKey {
  absl::string_view name;
  absl::string_view alias;  // the same under another name; may be empty
  int64_t ModelSpec::*member;
  int64_t fallback;  // 0: follows from other fields
  int64_t most;
};

struct RealKey {
  absl::string_view name;
  double ModelSpec::*member;
  double fallback, least, most;
};

struct SwitchKey {
  absl::string_view name;
  std::vector<bool ModelSpec::*> members;  // all get the value
  bool fallback;
};

// Changes the mathematics, and only these values are supported. Absent or null is always fine.
struct FixedKey {
  absl::string_view name;
  std::vector<nlohmann::json> allowed;  // the first is written
  absl::string_view meaning;            // of other values
};

struct FamilyKeys {
  absl::string_view model_type;
  absl::string_view architecture;
  ModelSpec base;  // what does not depend on the config
  std::vector<WholeKey> wholes;
  std::vector<RealKey> reals;
  std::vector<SwitchKey> switches;
  std::vector<FixedKey> fixed;
  std::vector<absl::string_view> ignored;  // no mathematics of training in them

  // The key that gives `member`; empty when none does.
  absl::string_view KeyOf(int64_t ModelSpec::*member) const;
};

const std::vector<FamilyKeys>& AllFamilyKeys();

// Every key that a config of this family may have.
std::vector<absl::string_view> KnownKeys(const FamilyKeys& family);

// The one of `known` that `key` is most likely a misspelling of; empty when none is close.
absl::string_view ClosestKey(absl::string_view key, const std::vector<absl::string_view>& known);

// A value for an error message, cut when long.
std::string Show(const nlohmann::json& value);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_CONFIG_KEYS_H_
