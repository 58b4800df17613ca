#include "engine/model/gguf_rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/rope_config.h"

namespace millrace {
namespace {

using nlohmann::json;

constexpr char kOriginal[] = "original_max_position_embeddings";
constexpr char kFrequencies[] = "rope_freqs.weight";
constexpr char kLong[] = "rope_factors_long.weight", kShort[] = "rope_factors_short.weight";
// Of the models that Meta has published with this scaling.
constexpr double kLlama3Low = 1.0, kLlama3High = 4.0;
constexpr int64_t kLlama3Context = 8192;

// What each frequency is divided by (RotaryScaling::kLlama3).
std::vector<double> Llama3Factors(double theta, size_t count, double factor, double context,
                                  double low, double high) {
  std::vector<double> factors;
  for (size_t i = 0; i < count; ++i) {
    const double wavelength =
        2 * std::numbers::pi * std::pow(theta, static_cast<double>(i) / static_cast<double>(count));
    const double smooth = (context / wavelength - low) / (high - low);
    factors.push_back(wavelength < context / high  ? 1.0
                      : wavelength > context / low ? factor
                                                   : 1 / ((1 - smooth) / factor + smooth));
  }
  return factors;
}

bool Near(double a, double b, double error) { return std::fabs(a - b) <= error * std::fabs(b); }

// Reads one file's.
class Reader {
 public:
  Reader(GgufKeys& keys, json& config) : keys_(keys), config_(config) {}

  absl::Status Read() {
    const int64_t head_dim = config_["head_dim"].get<int64_t>();
    MILLRACE_ASSIGN_OR_RETURN(const std::optional<int64_t> turned,
                              keys_.Whole("rope.dimension_count"));
    width_ = turned.value_or(head_dim);
    if (width_ != head_dim) {
      config_["partial_rotary_factor"] = PartialRotaryFactor(width_, head_dim);
    }
    MILLRACE_ASSIGN_OR_RETURN(context_, keys_.Whole("rope.scaling.original_context_length"));
    MILLRACE_ASSIGN_OR_RETURN(attention_factor_, keys_.Real("rope.scaling.attn_factor"));
    keys_.Find("rope.scaling.finetuned");  // where the model comes from
    MILLRACE_RETURN_IF_ERROR(ReadType());
    MILLRACE_RETURN_IF_ERROR(ReadFrequencies());
    MILLRACE_RETURN_IF_ERROR(ReadLongRope());
    if (keys_.architecture() == "phi3" && context_) config_[kOriginal] = *context_;
    const bool has_scaling = config_.contains("rope_scaling");
    if (attention_factor_.value_or(1.0) != 1.0 && !has_scaling) {
      return keys_.Error(keys_.FullKey("rope.scaling.attn_factor"),
                         "is not supported without yarn or longrope");
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ReadType() {
    MILLRACE_ASSIGN_OR_RETURN(const std::optional<std::string> type,
                              keys_.Text("rope.scaling.type"));
    if (!type || *type == "none" || *type == "longrope") return absl::OkStatus();
    if (*type != "linear" && *type != "yarn") {
      return keys_.Error(keys_.FullKey("rope.scaling.type"),
                         absl::StrCat("\"", absl::Utf8SafeCHexEscape(*type),
                                      "\" is none of none, linear, yarn, longrope"));
    }
    MILLRACE_ASSIGN_OR_RETURN(const std::optional<double> factor,
                              keys_.Real("rope.scaling.factor"));
    if (!factor) return keys_.Error(keys_.FullKey("rope.scaling.factor"), "is missing");
    json scaling = {{"rope_type", *type}, {"factor", *factor}};
    if (*type == "yarn") MILLRACE_RETURN_IF_ERROR(ReadYarn(*factor, scaling));
    if (*type == "linear" && attention_factor_.value_or(1.0) != 1.0) {
      return keys_.Error(keys_.FullKey("rope.scaling.attn_factor"),
                         "is not supported with linear scaling");
    }
    config_["rope_scaling"] = std::move(scaling);
    return absl::OkStatus();
  }

  absl::Status ReadYarn(double factor, json& scaling) {
    if (context_) scaling[kOriginal] = *context_;
    for (const auto& [gguf, hub] : {std::pair{"rope.scaling.yarn_beta_fast", "beta_fast"},
                                    {"rope.scaling.yarn_beta_slow", "beta_slow"}}) {
      MILLRACE_ASSIGN_OR_RETURN(const std::optional<double> beta, keys_.Real(gguf));
      if (beta) scaling[hub] = *beta;
    }
    // The config's own, as llama.cpp's converter writes it.
    MILLRACE_ASSIGN_OR_RETURN(const std::optional<double> own,
                              keys_.Real("rope.scaling.yarn_attn_factor"));
    if (own) scaling["attention_factor"] = *own;
    MILLRACE_ASSIGN_OR_RETURN(const std::optional<double> extrapolation,
                              keys_.Real("rope.scaling.yarn_ext_factor"));
    if (extrapolation.value_or(1.0) != 1.0) {
      return keys_.Error(keys_.FullKey("rope.scaling.yarn_ext_factor"),
                         "is not 1, which is not supported");
    }
    // This one multiplies what the factor implies.
    if (attention_factor_.value_or(1.0) != 1.0) {
      scaling["attention_factor"] =
          *attention_factor_ * (factor > 1 ? 0.1 * std::log(factor) + 1.0 : 1.0);
    }
    return absl::OkStatus();
  }

  absl::Status ReadFrequencies() {
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<double> factors,
                              keys_.Factors(kFrequencies, width_ / 2));
    if (factors.empty()) return absl::OkStatus();
    if (config_.contains("rope_scaling")) {
      return keys_.Error(absl::StrCat("tensor \"", kFrequencies, "\""),
                         absl::StrCat("and ", keys_.FullKey("rope.scaling.type"),
                                      " scale rotary embeddings both, which is not supported"));
    }
    const double factor = *std::max_element(factors.begin(), factors.end());
    const int64_t context = context_.value_or(kLlama3Context);
    const std::vector<double> expected =
        Llama3Factors(config_["rope_theta"].get<double>(), factors.size(), factor,
                      static_cast<double>(context), kLlama3Low, kLlama3High);
    bool is_llama3 = factor > 1.0;
    for (size_t i = 0; i < factors.size(); ++i) {
      is_llama3 = is_llama3 && Near(factors[i], expected[i], 1e-4);
    }
    if (is_llama3) {
      config_["rope_scaling"] = {{"rope_type", "llama3"},
                                 {"factor", factor},
                                 {"low_freq_factor", kLlama3Low},
                                 {"high_freq_factor", kLlama3High},
                                 {kOriginal, context}};
    } else {
      config_["rope_scaling"] = {{"rope_type", "longrope"},
                                 {"short_factor", factors},
                                 {"long_factor", factors},
                                 {"attention_factor", 1.0},
                                 {kOriginal, std::max<int64_t>(context, 2)}};
    }
    return absl::OkStatus();
  }

  absl::Status ReadLongRope() {
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<double> longer, keys_.Factors(kLong, width_ / 2));
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<double> shorter, keys_.Factors(kShort, width_ / 2));
    if (longer.empty() && shorter.empty()) return absl::OkStatus();
    if (longer.empty() || shorter.empty()) {
      return keys_.Error(
          absl::StrCat("tensor \"", longer.empty() ? kLong : kShort, "\""),
          absl::StrCat("is missing, though ", longer.empty() ? kShort : kLong, " is there"));
    }
    json scaling = {{"type", "longrope"}, {"long_factor", longer}, {"short_factor", shorter}};
    if (keys_.architecture() != "phi3" && context_) scaling[kOriginal] = *context_;
    if (attention_factor_ && !IsImplied(*attention_factor_)) {
      scaling["attention_factor"] = *attention_factor_;
    }
    config_["rope_scaling"] = std::move(scaling);
    return absl::OkStatus();
  }

  // By the lengths of the contexts, as in RotaryScaling::kLongRope.
  bool IsImplied(double attention_factor) const {
    const double longest = config_["max_position_embeddings"].get<double>();
    const double original = static_cast<double>(context_.value_or(0));
    const double implied = longest > original && original > 1
                               ? std::sqrt(1 + std::log(longest / original) / std::log(original))
                               : 1.0;
    return Near(attention_factor, implied, 1e-6);
  }

  GgufKeys& keys_;
  json& config_;
  int64_t width_ = 0;
  std::optional<int64_t> context_;
  std::optional<double> attention_factor_;
};

std::vector<float> Floats(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

// Writes one model's.
class Writer {
 public:
  Writer(absl::string_view architecture, const ModelSpec& spec)
      : architecture_(architecture), spec_(spec) {}

  absl::StatusOr<GgufRope> Write() {
    const RotaryEmbedding& rotary = spec_.rotary;
    Add("rope.dimension_count", GgufValue::Uint32(static_cast<uint32_t>(spec_.rotary_width)));
    const bool is_phi3 = architecture_ == "phi3";
    switch (rotary.scaling) {
      case RotaryScaling::kNone:
        // llama.cpp wants the key of every phi3 file.
        if (is_phi3) AddContext(spec_.max_positions);
        return std::move(rope_);
      case RotaryScaling::kDynamic:
        return Unsupported("dynamic");
      case RotaryScaling::kLinear:
        if (is_phi3) return Unsupported("linear");
        Add("rope.scaling.type", GgufValue::String("linear"));
        AddReal("rope.scaling.factor", rotary.factor);
        return std::move(rope_);
      case RotaryScaling::kYarn:
        return WriteYarn();
      case RotaryScaling::kLlama3:
        if (architecture_ != "llama") return Unsupported("llama3");
        AddContext(rotary.original_positions);
        rope_.constants.push_back(
            {kFrequencies,
             Floats(Llama3Factors(rotary.theta, spec_.rotary_width / 2, rotary.factor,
                                  static_cast<double>(rotary.original_positions),
                                  rotary.low_frequency_factor, rotary.high_frequency_factor))});
        return std::move(rope_);
      case RotaryScaling::kLongRope:
        return WriteLongRope();
    }
    return std::move(rope_);
  }

 private:
  void Add(absl::string_view key, GgufValue value) {
    rope_.metadata.emplace_back(absl::StrCat(architecture_, ".", key), std::move(value));
  }
  void AddReal(absl::string_view key, double value) {
    Add(key, GgufValue::Float32(static_cast<float>(value)));
  }
  void AddContext(int64_t positions) {
    Add("rope.scaling.original_context_length",
        GgufValue::Uint32(static_cast<uint32_t>(positions)));
  }
  absl::Status Unsupported(absl::string_view scaling) const {
    return absl::UnimplementedError(absl::StrCat("rotary embeddings with \"", scaling,
                                                 "\" scaling have no place in a GGUF file of a ",
                                                 spec_.model_type, " model"));
  }

  absl::StatusOr<GgufRope> WriteYarn() {
    const RotaryEmbedding& rotary = spec_.rotary;
    // gemma3: llama.cpp would apply a part of it to layers with windows, too.
    if (architecture_ == "gemma3" || architecture_ == "phi3") return Unsupported("yarn");
    if (!rotary.truncate) return Unsupported("yarn (truncate: false)");
    Add("rope.scaling.type", GgufValue::String("yarn"));
    AddReal("rope.scaling.factor", rotary.factor);
    AddContext(rotary.original_positions);
    AddReal("rope.scaling.yarn_beta_fast", rotary.beta_fast);
    AddReal("rope.scaling.yarn_beta_slow", rotary.beta_slow);
    const double implied = rotary.factor > 1 ? 0.1 * std::log(rotary.factor) + 1.0 : 1.0;
    if (rotary.attention_factor != implied) {
      AddReal("rope.scaling.attn_factor", rotary.attention_factor / implied);
    }
    return std::move(rope_);
  }

  absl::StatusOr<GgufRope> WriteLongRope() {
    const RotaryEmbedding& rotary = spec_.rotary;
    AddContext(rotary.original_positions);
    if (architecture_ == "phi3") {
      AddReal("rope.scaling.attn_factor", rotary.attention_factor);
      rope_.constants.push_back({kLong, Floats(rotary.long_factors)});
      rope_.constants.push_back({kShort, Floats(rotary.short_factors)});
      return std::move(rope_);
    }
    if (architecture_ != "llama" || rotary.long_factors != rotary.short_factors ||
        rotary.attention_factor != 1.0) {
      return Unsupported("longrope");
    }
    rope_.constants.push_back({kFrequencies, Floats(rotary.long_factors)});
    return std::move(rope_);
  }

  absl::string_view architecture_;
  const ModelSpec& spec_;
  GgufRope rope_;
};

}  // namespace

absl::Status ReadGgufRope(GgufKeys& keys, json& config) { return Reader(keys, config).Read(); }

absl::StatusOr<GgufRope> WriteGgufRope(absl::string_view architecture, const ModelSpec& spec) {
  return Writer(architecture, spec).Write();
}

}  // namespace millrace
