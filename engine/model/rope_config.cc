#include "engine/model/rope_config.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/model/rope_parameters.h"

namespace millrace {
namespace {

using nlohmann::json;

constexpr double kLeastTheta = 1.0, kMostTheta = 1e12;
constexpr int64_t kPhi3OriginalPositions = 4096;  // of the class in transformers

// Peng et al. 2023, section 3.4: what yarn multiplies cosines and sines by.
double YarnAttentionFactor(double factor, double mscale = 1.0) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

// Ding et al. 2024, equation 7.
double LongRopeAttentionFactor(double factor, double original_positions) {
  return factor <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(original_positions));
}

// Reads one rotary embedding.
class RopeReader {
 public:
  // `max_positions`: max_position_embeddings.
  RopeReader(const RopeKeys& keys, ConfigReader& reader, int64_t max_positions)
      : keys_(keys),
        reader_(reader),
        parameters_(keys.scalings, keys.as_phi3, reader),
        max_positions_(max_positions) {}

  RopeParameters& parameters() { return parameters_; }

  double Partial() {
    const double part = parameters_.RealOr("partial_rotary_factor", keys_.partial, 0.0, 1.0);
    if (part != 1.0 && !keys_.may_be_partial) {
      reader_.Complain(parameters_.FieldOf("partial_rotary_factor"),
                       absl::StrCat(part,
                                    " is not supported (partial rotary embedding); set it "
                                    "to 1.0 or leave it out"));
    }
    return part;
  }

  RotaryEmbedding Read(int64_t width, double theta) {
    const RopeScalingRow& row = parameters_.Scaling();
    if (!reader_.has_problems()) parameters_.CheckKeys(row);
    rotary_.theta = parameters_.RealOr("rope_theta", theta, kLeastTheta, kMostTheta);
    rotary_.scaling = row.scaling;
    switch (row.scaling) {
      case RotaryScaling::kNone:
        break;
      case RotaryScaling::kLinear:
        rotary_.factor = parameters_.Factor();
        break;
      case RotaryScaling::kDynamic:
        rotary_.factor = parameters_.Factor();
        rotary_.original_positions = max_positions_;
        if (width <= 2) {
          reader_.Complain(parameters_.FieldOf("rope_type"),
                           absl::StrCat("dynamic scaling needs heads wider than ", width));
        }
        break;
      case RotaryScaling::kYarn:
        ReadYarn();
        break;
      case RotaryScaling::kLlama3:
        ReadLlama3();
        break;
      case RotaryScaling::kLongRope:
        ReadLongRope(width);
        break;
    }
    return rotary_;
  }

 private:
  int64_t OriginalPositions(int64_t least) {
    const json* value = parameters_.Find(kRopeOriginal);
    if (keys_.as_phi3) {
      const json* above = reader_.Find(kRopeOriginal);
      const int64_t original = above
                                   ? reader_.Whole(*above, kRopeOriginal, least, kMostRopePositions)
                                   : kPhi3OriginalPositions;
      if (value && *value != original) {
        reader_.Complain(parameters_.FieldOf(kRopeOriginal),
                         absl::StrCat(Show(*value), " differs from ", kRopeOriginal, " (", original,
                                      "), which goes before it; set that one"));
      }
      return original;
    }
    return value ? reader_.Whole(*value, parameters_.FieldOf(kRopeOriginal), least,
                                 kMostRopePositions)
                 : max_positions_;
  }

  // Where the config leaves it out.
  double ImpliedFactor() const {
    return static_cast<double>(max_positions_) / static_cast<double>(rotary_.original_positions);
  }

  // Zero is as good as none.
  double RealAboveZeroOr(const std::string& key, double fallback) {
    const double value = parameters_.RealOr(key, fallback, 0.0, kMostRopeFactor);
    return value == 0.0 ? fallback : value;
  }

  void ReadYarn() {
    rotary_.original_positions = OriginalPositions(1);
    rotary_.factor =
        parameters_.RealOr("factor", std::max(ImpliedFactor(), 1.0), 1.0, kMostRopeFactor);
    rotary_.beta_fast = RealAboveZeroOr("beta_fast", rotary_.beta_fast);
    rotary_.beta_slow = RealAboveZeroOr("beta_slow", rotary_.beta_slow);
    if (const json* truncate = parameters_.Find("truncate")) {
      const std::string field = parameters_.FieldOf("truncate");
      if (!truncate->is_boolean()) {
        reader_.Complain(field, absl::StrCat(Show(*truncate), " is not true or false"));
      } else if (!truncate->get<bool>() && keys_.by_layer_type) {
        // transformers looks for it where a config by layer type cannot have it.
        reader_.Complain(field, "false is not supported; leave it out");
      } else {
        rotary_.truncate = truncate->get<bool>();
      }
    }
    const double mscale = parameters_.RealOr("mscale", 0.0, 0.0, kMostRopeFactor);
    const double mscale_all = parameters_.RealOr("mscale_all_dim", 0.0, 0.0, kMostRopeFactor);
    const double implied = mscale > 0 && mscale_all > 0
                               ? YarnAttentionFactor(rotary_.factor, mscale) /
                                     YarnAttentionFactor(rotary_.factor, mscale_all)
                               : YarnAttentionFactor(rotary_.factor);
    rotary_.attention_factor =
        parameters_.RealOr("attention_factor", implied, 0.0, kMostRopeFactor);
    if (rotary_.theta <= 1.0) {
      reader_.Complain(parameters_.FieldOf("rope_theta"), "is 1, with which yarn has no meaning");
    }
  }

  void ReadLlama3() {
    rotary_.factor = parameters_.Factor();
    rotary_.original_positions = OriginalPositions(1);
    for (const char* key : {"low_freq_factor", "high_freq_factor"}) {
      if (parameters_.Find(key) == nullptr)
        reader_.Complain(parameters_.FieldOf(key), "is missing");
    }
    rotary_.low_frequency_factor =
        parameters_.RealOr("low_freq_factor", 1.0, 1e-6, kMostRopeFactor);
    rotary_.high_frequency_factor =
        parameters_.RealOr("high_freq_factor", 4.0, 1e-6, kMostRopeFactor);
    if (rotary_.high_frequency_factor <= rotary_.low_frequency_factor) {
      reader_.Complain(
          parameters_.FieldOf("high_freq_factor"),
          absl::StrCat(rotary_.high_frequency_factor, " is not more than low_freq_factor (",
                       rotary_.low_frequency_factor, ")"));
    }
  }

  std::vector<double> Factors(const std::string& key, int64_t width) {
    const json* value = parameters_.Find(key);
    const std::string field = parameters_.FieldOf(key);
    if (!value || !value->is_array() || static_cast<int64_t>(value->size()) != width / 2) {
      reader_.Complain(field,
                       absl::StrCat(value ? Show(*value) : "null", " is not a list of ", width / 2,
                                    " numbers, one for each pair of a head's elements that turn"));
      return {};
    }
    std::vector<double> factors;
    for (const json& factor : *value) {
      factors.push_back(reader_.Real(factor, field, 1e-6, kMostRopeFactor));
    }
    return factors;
  }

  void ReadLongRope(int64_t width) {
    rotary_.original_positions = OriginalPositions(2);
    rotary_.short_factors = Factors("short_factor", width);
    rotary_.long_factors = Factors("long_factor", width);
    const double factor = parameters_.RealOr("factor", ImpliedFactor(), 1e-6, kMostRopeFactor);
    rotary_.attention_factor = parameters_.RealOr(
        "attention_factor",
        LongRopeAttentionFactor(factor, static_cast<double>(rotary_.original_positions)), 0.0,
        kMostRopeFactor);
  }

  const RopeKeys& keys_;
  ConfigReader& reader_;
  RopeParameters parameters_;
  int64_t max_positions_;
  RotaryEmbedding rotary_;
};

// An entry of `rope_parameters` by layer type.
const json* LayerTypeParameters(const ConfigReader& reader, const char* type) {
  const json* parameters = reader.Find("rope_parameters");
  if (!parameters || !parameters->is_object()) return nullptr;
  const auto found = parameters->find(type);
  return found == parameters->end() ? nullptr : &*found;
}

void CheckLayerTypes(ConfigReader& reader) {
  const json* parameters = reader.Find("rope_parameters");
  if (!parameters) return;
  if (!parameters->is_object()) {
    reader.Complain("rope_parameters", absl::StrCat(Show(*parameters), " is not an object"));
    return;
  }
  for (const auto& [key, value] : parameters->items()) {
    if (key == "full_attention" || key == "sliding_attention") continue;
    reader.Complain(absl::StrCat("rope_parameters.", key),
                    "is neither full_attention nor sliding_attention, the types of layers that "
                    "rope_parameters are for");
  }
}

// The parameters in rope_scaling; null for none.
json Scaling(const RotaryEmbedding& rotary, int64_t max_positions, absl::string_view type_key) {
  const RopeScalingRow& row = RopeScalingRowOf(rotary.scaling);
  json scaling = {{std::string(type_key), std::string(row.name)}};
  double implied = 1.0;
  switch (rotary.scaling) {
    case RotaryScaling::kNone:
      return nullptr;
    case RotaryScaling::kLinear:
    case RotaryScaling::kDynamic:
      scaling["factor"] = rotary.factor;
      break;
    case RotaryScaling::kYarn:
      scaling["factor"] = rotary.factor;
      scaling[kRopeOriginal] = rotary.original_positions;
      scaling["beta_fast"] = rotary.beta_fast;
      scaling["beta_slow"] = rotary.beta_slow;
      if (!rotary.truncate) scaling["truncate"] = false;
      implied = YarnAttentionFactor(rotary.factor);
      break;
    case RotaryScaling::kLlama3:
      scaling["factor"] = rotary.factor;
      scaling[kRopeOriginal] = rotary.original_positions;
      scaling["low_freq_factor"] = rotary.low_frequency_factor;
      scaling["high_freq_factor"] = rotary.high_frequency_factor;
      break;
    case RotaryScaling::kLongRope:
      scaling["short_factor"] = rotary.short_factors;
      scaling["long_factor"] = rotary.long_factors;
      scaling[kRopeOriginal] = rotary.original_positions;
      implied = LongRopeAttentionFactor(
          static_cast<double>(max_positions) / static_cast<double>(rotary.original_positions),
          static_cast<double>(rotary.original_positions));
      break;
  }
  if (rotary.attention_factor != implied) scaling["attention_factor"] = rotary.attention_factor;
  return scaling;
}

}  // namespace

double PartialRotaryFactor(int64_t width, int64_t head_dim) {
  const double heads = static_cast<double>(head_dim);
  const double part = static_cast<double>(width) / heads;
  return static_cast<int64_t>(heads * part) == width ? part : std::nextafter(part, 1.0);
}

std::vector<absl::string_view> RopeKeyNames(const RopeKeys& keys) {
  std::vector<absl::string_view> names = {keys.theta_key, keys.partial_key, "rope_scaling",
                                          "rope_parameters"};
  if (keys.as_phi3) names.push_back(kRopeOriginal);
  if (keys.by_layer_type) names.push_back("rope_local_base_freq");
  return names;
}

void ReadRope(const RopeKeys& keys, ConfigReader& reader, ModelSpec& spec) {
  RopeReader rope(keys, reader, spec.max_positions);
  RopeParameters& parameters = rope.parameters();
  parameters.AddKey("rope_theta", keys.theta_key);
  parameters.AddKey("partial_rotary_factor", keys.partial_key);
  parameters.AddObject(reader.Find("rope_scaling"), "rope_scaling");
  if (keys.by_layer_type) {
    CheckLayerTypes(reader);
    parameters.AddObject(LayerTypeParameters(reader, "full_attention"),
                         "rope_parameters.full_attention");
  } else {
    parameters.AddObject(reader.Find("rope_parameters"), "rope_parameters");
  }
  spec.rotary_width = static_cast<int64_t>(static_cast<double>(spec.head_dim) * rope.Partial());
  if (spec.rotary_width % 2 != 0 || spec.rotary_width == 0) {
    reader.Complain(parameters.FieldOf("partial_rotary_factor"),
                    absl::StrCat("makes ", spec.rotary_width, " of a head's ", spec.head_dim,
                                 " elements turn; rotary position embedding needs an even number"));
    return;
  }
  spec.rotary = rope.Read(spec.rotary_width, keys.theta);

  if (keys.by_layer_type && spec.window > 0) {
    constexpr double kWindowTheta = 10000.0;
    RopeReader windowed(keys, reader, spec.max_positions);
    windowed.parameters().AddKey("rope_theta", "rope_local_base_freq");
    windowed.parameters().AddObject(LayerTypeParameters(reader, "sliding_attention"),
                                    "rope_parameters.sliding_attention");
    windowed.Partial();
    spec.window_rotary = windowed.Read(spec.rotary_width, kWindowTheta);
  }
  const double longest = spec.rotary.factor * static_cast<double>(spec.rotary.original_positions);
  if (spec.rotary.scaling == RotaryScaling::kDynamic ||
      spec.rotary.scaling == RotaryScaling::kYarn) {
    spec.max_positions = std::max(
        spec.max_positions, static_cast<int64_t>(std::min<double>(longest, kMostRopePositions)));
  }
}

void WriteRope(const RopeKeys& keys, const ModelSpec& spec, json& config) {
  const RotaryEmbedding& rotary = spec.rotary;
  config["max_position_embeddings"] =
      rotary.scaling == RotaryScaling::kDynamic ? rotary.original_positions : spec.max_positions;
  if (keys.by_layer_type && spec.window_rotary &&
      spec.window_rotary->scaling != RotaryScaling::kNone) {
    for (const auto& [type, embedding] :
         {std::pair("full_attention", &rotary), {"sliding_attention", &*spec.window_rotary}}) {
      json parameters = Scaling(*embedding, spec.max_positions, "rope_type");
      if (parameters.is_null()) parameters = {{"rope_type", "default"}};
      parameters["rope_theta"] = embedding->theta;
      config["rope_parameters"][type] = std::move(parameters);
    }
    return;
  }
  if (keys.by_layer_type && spec.window_rotary) {
    config["rope_local_base_freq"] = spec.window_rotary->theta;
  }
  config[std::string(keys.theta_key)] = rotary.theta;
  if (keys.may_be_partial) {
    config[std::string(keys.partial_key)] = PartialRotaryFactor(spec.rotary_width, spec.head_dim);
  }
  // By layer type, transformers 5 hears of "rope_type" alone.
  json scaling =
      Scaling(rotary, spec.max_positions,
              keys.by_layer_type ? "rope_type" : RopeScalingRowOf(rotary.scaling).type_key);
  if (keys.as_phi3 && rotary.scaling == RotaryScaling::kLongRope) {
    config[kRopeOriginal] = rotary.original_positions;
    scaling.erase(kRopeOriginal);  // as the class in transformers once insisted on
  }
  config["rope_scaling"] = std::move(scaling);
}

}  // namespace millrace
