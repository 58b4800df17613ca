// The parameters of one rotary embedding, gathered from all places where a config may have them.
#ifndef MILLRACE_ENGINE_MODEL_ROPE_PARAMETERS_H_
#define MILLRACE_ENGINE_MODEL_ROPE_PARAMETERS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/model/config_reader.h"
#include "engine/ops/rotary_table.h"
#include "nlohmann/json.hpp"

namespace millrace {

inline constexpr double kMostRopeFactor = 1e6;
inline constexpr int64_t kMostRopePositions = 1 << 24;
inline constexpr char kRopeOriginal[] = "original_max_position_embeddings";

struct RopeScalingRow {
  RotaryScaling scaling;
  absl::string_view name;  // in `rope_type`
  std::vector<absl::string_view> keys;
  absl::string_view type_key;  // that most versions of transformers read
};
const RopeScalingRow& RopeScalingRowOf(RotaryScaling scaling);

class RopeParameters {
 public:
  // `scalings`: those that the family may have. `as_phi3`: "su" and "yarn" are names of longrope.
  // All must stay.
  RopeParameters(const std::vector<RotaryScaling>& scalings, bool as_phi3, ConfigReader& reader)
      : scalings_(scalings), as_phi3_(as_phi3), reader_(reader) {}

  // Takes a parameter that is not null from `field` of the config, and complains when it is there
  // already with another value.
  void Add(std::string key, nlohmann::json value, const std::string& field);
  // A parameter that the config has under a name of its own, if it has it.
  void AddKey(absl::string_view key, absl::string_view name_in_config);
  // All in an object; nullptr or null: none.
  void AddObject(const nlohmann::json* object, const std::string& field);

  const nlohmann::json* Find(const std::string& key) const;
  // Where the parameter is, or would be.
  std::string FieldOf(const std::string& key) const;
  double RealOr(const std::string& key, double fallback, double least, double most);
  // `factor`, with a complaint where there is none.
  double Factor();
  // By `rope_type`; the one of kNone, with a complaint, where that is no scaling of the family.
  const RopeScalingRow& Scaling();
  // Complains of parameters that this kind of scaling does not have.
  void CheckKeys(const RopeScalingRow& row);

 private:
  const std::vector<RotaryScaling>& scalings_;
  bool as_phi3_;
  ConfigReader& reader_;
  std::map<std::string, std::pair<nlohmann::json, std::string>> parameters_;  // value, field
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_ROPE_PARAMETERS_H_
