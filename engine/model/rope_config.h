// The rotary embedding of a config.json: `rope_theta` and `rope_scaling` as older files have them,
// `rope_parameters` as newer ones do, and both at once when they agree.
#ifndef MILLRACE_ENGINE_MODEL_ROPE_CONFIG_H_
#define MILLRACE_ENGINE_MODEL_ROPE_CONFIG_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/model/config_reader.h"
#include "engine/model/model_spec.h"
#include "nlohmann/json.hpp"

namespace millrace {

// How the configs of a family differ.
struct RopeKeys {
  double theta = 10000.0;  // where none is given
  // Names of rope_theta and partial_rotary_factor beside, not in, `rope_parameters`.
  absl::string_view theta_key = "rope_theta";
  absl::string_view partial_key = "partial_rotary_factor";
  // Whether a part of each head may stay as it is, and the part that turns where none is given.
  bool may_be_partial = false;
  double partial = 1.0;
  // Of those that RotaryScaling has.
  std::vector<RotaryScaling> scalings = {RotaryScaling::kLinear, RotaryScaling::kDynamic,
                                         RotaryScaling::kYarn, RotaryScaling::kLlama3,
                                         RotaryScaling::kLongRope};
  // Phi 3: "su" and "yarn" are names of longrope, and `original_max_position_embeddings` stands
  // beside rope_scaling and goes before the one in it.
  bool as_phi3 = false;
  // Gemma 3: layers with a window have their own, from `rope_local_base_freq` or
  // `rope_parameters.sliding_attention`.
  bool by_layer_type = false;
};

// The partial_rotary_factor of which transformers makes `width` again: its product with head_dim,
// cut to a whole number.
double PartialRotaryFactor(int64_t width, int64_t head_dim);

// Keys of the config that `keys` read.
std::vector<absl::string_view> RopeKeyNames(const RopeKeys& keys);

// Sets `rotary`, `rotary_width` and `window_rotary` of a spec whose head_dim, windows and
// max_positions, as in the config, are known. Where the scaling lets sequences be longer than
// max_position_embeddings (dynamic, yarn), max_positions becomes that longer length.
void ReadRope(const RopeKeys& keys, ConfigReader& reader, ModelSpec& spec);

// Adds what ReadRope reads back, in the older form where it can say it, which all versions of
// transformers read, and sets max_position_embeddings.
void WriteRope(const RopeKeys& keys, const ModelSpec& spec, nlohmann::json& config);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_ROPE_CONFIG_H_
