#include "engine/model/rope_parameters.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace millrace {
namespace {

using nlohmann::json;

const std::vector<RopeScalingRow>& RopeScalingRows() {
  static const auto* rows = new std::vector<RopeScalingRow>{
      {RotaryScaling::kNone, "default", {}, "rope_type"},
      {RotaryScaling::kLinear, "linear", {"factor"}, "type"},
      {RotaryScaling::kDynamic, "dynamic", {"factor"}, "type"},
      {RotaryScaling::kYarn,
       "yarn",
       {"factor", kRopeOriginal, "attention_factor", "beta_fast", "beta_slow", "mscale",
        "mscale_all_dim", "truncate"},
       "rope_type"},
      {RotaryScaling::kLlama3,
       "llama3",
       {"factor", kRopeOriginal, "low_freq_factor", "high_freq_factor"},
       "rope_type"},
      {RotaryScaling::kLongRope,
       "longrope",
       {"short_factor", "long_factor", "factor", kRopeOriginal, "attention_factor"},
       "type"},
  };
  return *rows;
}

bool IsIn(const std::vector<absl::string_view>& keys, absl::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

}  // namespace

const RopeScalingRow& RopeScalingRowOf(RotaryScaling scaling) {
  for (const RopeScalingRow& row : RopeScalingRows()) {
    if (row.scaling == scaling) return row;
  }
  return RopeScalingRows().front();
}

void RopeParameters::Add(std::string key, json value, const std::string& field) {
  if (value.is_null()) return;
  if (key == "type") key = "rope_type";
  if (key == "rope_type" && as_phi3_ && (value == "su" || value == "yarn")) {
    value = "longrope";
  }
  const auto [found, is_new] = parameters_.emplace(key, std::pair(value, field));
  if (is_new || found->second.first == value) return;
  reader_.Complain(field, absl::StrCat(Show(value), " differs from ", found->second.second, " (",
                                       Show(found->second.first), "); give one of them"));
}

void RopeParameters::AddKey(absl::string_view key, absl::string_view name_in_config) {
  if (const json* value = reader_.Find(name_in_config)) {
    Add(std::string(key), *value, std::string(name_in_config));
  }
}

void RopeParameters::AddObject(const json* object, const std::string& field) {
  if (object == nullptr || object->is_null()) return;
  if (!object->is_object()) {
    reader_.Complain(field, absl::StrCat(Show(*object), " is not an object"));
    return;
  }
  for (const auto& [key, value] : object->items()) {
    Add(key, value, absl::StrCat(field, ".", key));
  }
}

const json* RopeParameters::Find(const std::string& key) const {
  const auto found = parameters_.find(key);
  return found == parameters_.end() ? nullptr : &found->second.first;
}

std::string RopeParameters::FieldOf(const std::string& key) const {
  const auto found = parameters_.find(key);
  if (found != parameters_.end()) return found->second.second;
  const auto type = parameters_.find("rope_type");
  if (type == parameters_.end()) return key;
  const std::string& field = type->second.second;
  return absl::StrCat(field.substr(0, field.rfind('.') + 1), key);
}

double RopeParameters::RealOr(const std::string& key, double fallback, double least, double most) {
  const json* value = Find(key);
  return value ? reader_.Real(*value, FieldOf(key), least, most) : fallback;
}

double RopeParameters::Factor() {
  if (Find("factor") == nullptr) {
    reader_.Complain(FieldOf("factor"), "is missing; give the factor of the scaling");
  }
  return RealOr("factor", 1.0, 1.0, kMostRopeFactor);
}

const RopeScalingRow& RopeParameters::Scaling() {
  const json* type = Find("rope_type");
  std::vector<absl::string_view> names = {"default"};
  for (RotaryScaling scaling : scalings_) names.push_back(RopeScalingRowOf(scaling).name);
  for (const RopeScalingRow& row : RopeScalingRows()) {
    if (type == nullptr || (*type == std::string(row.name) && IsIn(names, row.name))) return row;
  }
  reader_.Complain(
      FieldOf("rope_type"),
      absl::StrCat(Show(*type), " is not supported; choose one of ", absl::StrJoin(names, ", ")));
  return RopeScalingRows().front();
}

void RopeParameters::CheckKeys(const RopeScalingRow& row) {
  for (const auto& [key, parameter] : parameters_) {
    const bool is_common =
        key == "rope_type" || key == "rope_theta" || key == "partial_rotary_factor";
    if (is_common || IsIn(row.keys, key)) continue;
    reader_.Complain(parameter.second, absl::StrCat("is not a parameter of rotary embedding \"",
                                                    row.name, "\"; remove it"));
  }
}

}  // namespace millrace
