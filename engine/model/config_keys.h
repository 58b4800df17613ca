// The kinds of keys that a config.json has, and what the table of families (family_table.h) says of
// each family.
#ifndef MILLRACE_ENGINE_MODEL_CONFIG_KEYS_H_
#define MILLRACE_ENGINE_MODEL_CONFIG_KEYS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/model/config_reader.h"
#include "engine/model/layer_types.h"
#include "engine/model/model_spec.h"
#include "engine/model/rope_config.h"
#include "nlohmann/json.hpp"

namespace millrace {

// Null may mean something else than absence.
enum class Null : uint8_t { kAbsent, kZero };

// A positive whole number.
struct WholeKey {
  absl::string_view name;
  absl::string_view alias;  // the same under another name; may be empty
  int64_t ModelSpec::*member;
  int64_t fallback;  // 0: follows from other fields
  int64_t most;
  Null null = Null::kAbsent;
};

struct RealKey {
  absl::string_view name;
  double ModelSpec::*member;
  double fallback, least, most;
  Null null = Null::kAbsent;
};

struct SwitchKey {
  absl::string_view name;
  std::vector<bool ModelSpec::*> members;  // all get the value
  bool fallback;
};

struct ActivationKey {
  absl::string_view name = "hidden_act";
  absl::string_view fallback = "silu";
  // A key that older files have beside it, which must say the same; may be empty.
  absl::string_view beside = "";
};

// Changes the mathematics, and only these values are supported. Absent or null is always fine.
struct FixedKey {
  absl::string_view name;
  std::vector<nlohmann::json> allowed;
  absl::string_view meaning;  // of other values
};

// A probability of dropout, which is not done.
struct DropoutKey {
  absl::string_view name;
  bool is_written = false;  // since the class in transformers has another default than 0
};

struct FamilyKeys {
  absl::string_view model_type;
  absl::string_view architecture;
  ModelSpec base;  // what does not depend on the config
  std::vector<WholeKey> wholes;
  std::vector<RealKey> reals;
  std::vector<SwitchKey> switches;
  ActivationKey activation;
  RopeKeys rope;
  WindowKeys window;
  std::vector<DropoutKey> dropouts;
  std::vector<FixedKey> fixed;
  std::vector<absl::string_view> ignored;  // no mathematics of training in them
  // What no row above can say: keys of its own, and what follows from them or from other fields.
  // Read when all rows are; may be nullptr.
  std::vector<absl::string_view> own;
  void (*read_own)(ConfigReader& reader, ModelSpec& spec) = nullptr;
  void (*write_own)(const ModelSpec& spec, nlohmann::json& config) = nullptr;

  // The key that gives `member`; empty when none does.
  absl::string_view KeyOf(int64_t ModelSpec::*member) const;
};

// Every key that a config of this family may have.
std::vector<absl::string_view> KnownKeys(const FamilyKeys& family);

// The one of `known` that `key` is most likely a misspelling of; empty when none is close.
absl::string_view ClosestKey(absl::string_view key, const std::vector<absl::string_view>& known);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_CONFIG_KEYS_H_
