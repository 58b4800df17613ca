#include "engine/model/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "engine/base/status_macros.h"
#include "engine/model/gguf_names.h"

namespace millrace {
namespace {

using nlohmann::json;

enum class Need : uint8_t { kRequired, kOptional };

// A key of the metadata, without its architecture, and of the config.
struct Key {
  absl::string_view gguf, hub;
  Need need = Need::kRequired;
};

struct Architecture {
  absl::string_view name, model_type, hub_class;
  std::vector<Key> wholes, reals;
  json constants;  // what the architecture implies
  // Keys of the config that say whether a tensor is there.
  std::vector<std::pair<absl::string_view, absl::string_view>> switches;
};

std::vector<Key> operator+(std::vector<Key> a, const std::vector<Key>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const std::vector<Architecture>& Architectures() {
  static const auto* architectures = [] {
    constexpr Need kOptional = Need::kOptional;
    const std::vector<Key> wholes = {
        {"block_count", "num_hidden_layers"},
        {"context_length", "max_position_embeddings"},
        {"embedding_length", "hidden_size"},
        {"feed_forward_length", "intermediate_size"},
        {"attention.head_count", "num_attention_heads"},
        {"attention.head_count_kv", "num_key_value_heads", kOptional},
        {"attention.key_length", "head_dim", kOptional},
    };
    const std::vector<Key> window = {{"attention.sliding_window", "sliding_window", kOptional}};
    const std::vector<Key> reals = {
        {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
        {"rope.freq_base", "rope_theta", kOptional},
    };
    const std::vector<Key> caps = {
        {"attn_logit_softcapping", "attn_logit_softcapping", kOptional},
        {"final_logit_softcapping", "final_logit_softcapping", kOptional},
    };
    const json silu = {{"hidden_act", "silu"}};
    const json gelu = {{"hidden_activation", "gelu_pytorch_tanh"}};
    const json qwen = {{"hidden_act", "silu"}, {"use_sliding_window", false}};
    return new std::vector<Architecture>{
        // A window in a llama file stands in the config, which a llama config may not have.
        {"llama",
         "llama",
         "LlamaForCausalLM",
         wholes + window,
         reals,
         silu,
         {{"attention_bias", "blk.0.attn_q.bias"}, {"mlp_bias", "blk.0.ffn_up.bias"}}},
        {"qwen2", "qwen2", "Qwen2ForCausalLM", wholes, reals, qwen, {}},
        {"qwen3",
         "qwen3",
         "Qwen3ForCausalLM",
         wholes,
         reals,
         qwen,
         {{"attention_bias", "blk.0.attn_q.bias"}}},
        {"gemma2", "gemma2", "Gemma2ForCausalLM", wholes + window, reals + caps, gelu, {}},
        {"gemma3",
         "gemma3_text",
         "Gemma3ForCausalLM",
         wholes + window,
         reals + caps + std::vector<Key>{{"rope.freq_base_swa", "rope_local_base_freq", kOptional}},
         gelu,
         {}},
        {"phi3", "phi3", "Phi3ForCausalLM", wholes + window, reals, silu, {}},
        {"gpt2",
         "gpt2",
         "GPT2LMHeadModel",
         {{"block_count", "n_layer"},
          {"context_length", "n_positions"},
          {"embedding_length", "n_embd"},
          {"feed_forward_length", "n_inner", kOptional},
          {"attention.head_count", "n_head"}},
         {{"attention.layer_norm_epsilon", "layer_norm_epsilon"}},
         {{"activation_function", "gelu_new"}},
         {}},
    };
  }();
  return *architectures;
}

// Makes one file's config.
class ConfigMaker {
 public:
  ConfigMaker(const GgufFile& file, const Architecture& architecture)
      : file_(file), architecture_(architecture) {}

  absl::StatusOr<json> Make() {
    config_ = architecture_.constants;
    config_["model_type"] = std::string(architecture_.model_type);
    config_["architectures"] = {std::string(architecture_.hub_class)};
    for (const Key& key : architecture_.wholes) MILLRACE_RETURN_IF_ERROR(TakeWhole(key));
    for (const Key& key : architecture_.reals) MILLRACE_RETURN_IF_ERROR(TakeReal(key));
    for (const auto& [key, tensor] : architecture_.switches) {
      config_[std::string(key)] = file_.FindTensor(tensor) != nullptr;
    }
    MILLRACE_RETURN_IF_ERROR(TakeEmbedding());
    TakeTokens();
    if (architecture_.name != "gpt2") MILLRACE_RETURN_IF_ERROR(TakeHeadsAndRotary());
    MILLRACE_RETURN_IF_ERROR(TakeGemma());
    MILLRACE_RETURN_IF_ERROR(CheckNoExperts());
    MILLRACE_RETURN_IF_ERROR(CheckUnknownKeys());
    return std::move(config_);
  }

 private:
  std::string FullKey(absl::string_view key) const {
    return absl::StrCat(architecture_.name, ".", key);
  }
  absl::Status Error(absl::string_view name, absl::string_view message) const {
    return absl::InvalidArgumentError(
        absl::StrCat(file_.path(), ": ", absl::Utf8SafeCHexEscape(name), " ", message));
  }

  // The value of an architecture's key, which is then known; nullptr where there is none.
  const GgufValue* Find(absl::string_view key) {
    std::string full = FullKey(key);
    const GgufValue* value = file_.FindValue(full);
    known_.insert(std::move(full));
    return value;
  }

  absl::StatusOr<std::optional<int64_t>> Whole(absl::string_view key) {
    const GgufValue* value = Find(key);
    if (!value) return std::nullopt;
    const std::optional<int64_t> number = value->whole();
    if (!number || *number < 0 || *number > int64_t{1} << 40) {
      return Error(FullKey(key), "is no whole number that is possible; one for all blocks is read");
    }
    return number;
  }
  absl::StatusOr<std::optional<double>> Real(absl::string_view key) {
    const GgufValue* value = Find(key);
    if (!value) return std::nullopt;
    const std::optional<double> number = value->real();
    if (!number || !std::isfinite(*number)) return Error(FullKey(key), "is no finite number");
    return number;
  }

  template <typename Number>
  absl::Status Keep(const Key& key, const std::optional<Number>& number) {
    if (number) {
      config_[std::string(key.hub)] = *number;
    } else if (key.need == Need::kRequired) {
      return Error(FullKey(key.gguf), "is missing");
    }
    return absl::OkStatus();
  }
  absl::Status TakeWhole(const Key& key) {
    MILLRACE_ASSIGN_OR_RETURN(const std::optional<int64_t> number, Whole(key.gguf));
    return Keep(key, number);
  }
  absl::Status TakeReal(const Key& key) {
    MILLRACE_ASSIGN_OR_RETURN(const std::optional<double> number, Real(key.gguf));
    return Keep(key, number);
  }

  absl::Status TakeEmbedding() {
    const GgufTensor* embedding = file_.FindTensor("token_embd.weight");
    if (!embedding || embedding->shape.size() != 2) {
      return Error("tensor \"token_embd.weight\"", "is missing or no matrix");
    }
    config_["vocab_size"] = embedding->shape[0];
    Find("vocab_size");
    // Some converters write a tied head out.
    const GgufTensor* head = file_.FindTensor("output.weight");
    config_["tie_word_embeddings"] =
        !head || (head->type == embedding->type && head->shape == embedding->shape &&
                  file_.BytesOf(*head) == file_.BytesOf(*embedding));
    return absl::OkStatus();
  }

  void TakeTokens() {
    for (const absl::string_view token : {"bos", "eos"}) {
      const GgufValue* value = file_.FindValue(absl::StrCat("tokenizer.ggml.", token, "_token_id"));
      if (value && value->whole()) config_[absl::StrCat(token, "_token_id")] = *value->whole();
    }
  }

  absl::Status TakeHeadsAndRotary() {
    const int64_t heads = config_["num_attention_heads"].get<int64_t>();
    const int64_t hidden = config_["hidden_size"].get<int64_t>();
    if (heads < 1) return Error(FullKey("attention.head_count"), "is zero");
    if (!config_.contains("num_key_value_heads")) config_["num_key_value_heads"] = heads;
    if (!config_.contains("rope_theta")) config_["rope_theta"] = 10000.0;
    head_dim_ = config_.value("head_dim", hidden / heads);
    MILLRACE_ASSIGN_OR_RETURN(const std::optional<int64_t> value_width,
                              Whole("attention.value_length"));
    if (value_width && *value_width != head_dim_) {
      return Error(FullKey("attention.value_length"),
                   absl::StrCat("(", *value_width, ") differs from the keys' width (", head_dim_,
                                "), which is not supported"));
    }
    MILLRACE_ASSIGN_OR_RETURN(const std::optional<int64_t> turned, Whole("rope.dimension_count"));
    if (turned && *turned != head_dim_ && head_dim_ > 0) {
      config_["partial_rotary_factor"] =
          static_cast<double>(*turned) / static_cast<double>(head_dim_);
    }
    MILLRACE_RETURN_IF_ERROR(TakeScaling());
    MILLRACE_RETURN_IF_ERROR(TakeLlama3Factors());
    return TakeLongFactors();
  }

  // rope.scaling.*: linear or yarn. (longrope is in tensors, and so are llama 3's factors.)
  absl::Status TakeScaling() {
    // These say where the model comes from; yarn and longrope alone compute with the second.
    Find("rope.scaling.finetuned");
    Find("rope.scaling.original_context_length");
    std::string type = "none";
    if (const GgufValue* value = Find("rope.scaling.type")) {
      if (!value->text()) return Error(FullKey("rope.scaling.type"), "is no string");
      type = std::string(*value->text());
    }
    if (type == "none" || type == "longrope") return absl::OkStatus();
    if (type != "linear" && type != "yarn") {
      return Error(FullKey("rope.scaling.type"),
                   absl::StrCat("\"", absl::Utf8SafeCHexEscape(type),
                                "\" is none of none, linear, yarn, longrope"));
    }
    MILLRACE_ASSIGN_OR_RETURN(const std::optional<double> factor, Real("rope.scaling.factor"));
    if (!factor) return Error(FullKey("rope.scaling.factor"), "is missing");
    json scaling = {{"rope_type", type}, {"factor", *factor}};
    if (type == "yarn") {
      MILLRACE_ASSIGN_OR_RETURN(const std::optional<int64_t> context,
                                Whole("rope.scaling.original_context_length"));
      if (context) scaling["original_max_position_embeddings"] = *context;
      MILLRACE_ASSIGN_OR_RETURN(const std::optional<double> fast,
                                Real("rope.scaling.yarn_beta_fast"));
      if (fast) scaling["beta_fast"] = *fast;
      MILLRACE_ASSIGN_OR_RETURN(const std::optional<double> slow,
                                Real("rope.scaling.yarn_beta_slow"));
      if (slow) scaling["beta_slow"] = *slow;
    }
    config_["rope_scaling"] = std::move(scaling);
    return absl::OkStatus();
  }

  // Values of a vector of rotary factors; empty where there is none.
  absl::StatusOr<std::vector<float>> Factors(absl::string_view name) {
    const GgufTensor* tensor = file_.FindTensor(name);
    if (!tensor) return std::vector<float>();
    const double turned = config_.value("partial_rotary_factor", 1.0) * head_dim_;
    if (tensor->count() != std::llround(turned / 2)) {
      return Error(absl::StrCat("tensor \"", name, "\""),
                   absl::StrCat("has ", tensor->count(), " elements; half a head has ",
                                std::llround(turned / 2)));
    }
    std::vector<float> factors(tensor->count());
    MILLRACE_RETURN_IF_ERROR(file_.Read(*tensor, 0, absl::MakeSpan(factors)));
    for (float factor : factors) {
      if (!(factor > 0.0f && factor < 1e9f)) {
        return Error(absl::StrCat("tensor \"", name, "\""), "has an impossible factor");
      }
    }
    return factors;
  }

  // The converter writes what Llama 3.1's scaling makes of each frequency. The parameters are the
  // same in all such models but for the factor, which is the largest value.
  absl::Status TakeLlama3Factors() {
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<float> factors, Factors("rope_freqs.weight"));
    if (factors.empty()) return absl::OkStatus();
    constexpr double kLow = 1.0, kHigh = 4.0, kContext = 8192.0;
    const double factor = *std::max_element(factors.begin(), factors.end());
    const double theta = config_["rope_theta"].get<double>();
    for (size_t i = 0; i < factors.size(); ++i) {
      const double wavelength =
          2 * std::numbers::pi * std::pow(theta, static_cast<double>(i) / factors.size());
      const double smooth = (kContext / wavelength - kLow) / (kHigh - kLow);
      const double expected = wavelength < kContext / kHigh  ? 1.0
                              : wavelength > kContext / kLow ? factor
                                                             : 1 / ((1 - smooth) / factor + smooth);
      if (std::fabs(factors[i] - expected) > 1e-3 * expected) {
        return Error("tensor \"rope_freqs.weight\"",
                     "holds factors that are not those of Llama 3's rotary scaling");
      }
    }
    config_["rope_scaling"] = {{"rope_type", "llama3"},
                               {"factor", factor},
                               {"low_freq_factor", kLow},
                               {"high_freq_factor", kHigh},
                               {"original_max_position_embeddings", 8192}};
    return absl::OkStatus();
  }

  absl::Status TakeLongFactors() {
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<float> longer, Factors("rope_factors_long.weight"));
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<float> shorter,
                              Factors("rope_factors_short.weight"));
    if (architecture_.name == "phi3") {
      MILLRACE_ASSIGN_OR_RETURN(const std::optional<int64_t> context,
                                Whole("rope.scaling.original_context_length"));
      if (context) config_["original_max_position_embeddings"] = *context;
    }
    if (longer.empty() && shorter.empty()) return absl::OkStatus();
    if (longer.empty() || shorter.empty()) {
      return Error("tensor \"rope_factors_long.weight\"",
                   "and rope_factors_short.weight go "
                   "together, but one of them is missing");
    }
    MILLRACE_RETURN_IF_ERROR(CheckAttentionFactor());
    config_["rope_scaling"] = {
        {"type", "longrope"}, {"long_factor", longer}, {"short_factor", shorter}};
    return absl::OkStatus();
  }

  // transformers derives it: sqrt(1 + ln(scale) / ln(original context)).
  absl::Status CheckAttentionFactor() {
    MILLRACE_ASSIGN_OR_RETURN(const std::optional<double> given, Real("rope.scaling.attn_factor"));
    if (!given) return absl::OkStatus();
    const double context = config_["max_position_embeddings"].get<double>();
    const double original = config_.value("original_max_position_embeddings", context);
    const double derived = context > original && original > 1
                               ? std::sqrt(1 + std::log(context / original) / std::log(original))
                               : 1.0;
    if (std::fabs(*given - derived) <= 1e-3) return absl::OkStatus();
    return Error(FullKey("rope.scaling.attn_factor"),
                 absl::StrCat("is ", *given, ", but the context lengths make it ", derived));
  }

  absl::Status TakeGemma() {
    if (architecture_.name != "gemma2" && architecture_.name != "gemma3") return absl::OkStatus();
    // The largest of each generation scales queries by the width that heads would have if they
    // divided the residual stream; llama.cpp knows it by the number of blocks, too.
    const int64_t layers = config_["num_hidden_layers"].get<int64_t>();
    const bool largest = layers == (architecture_.name == "gemma2" ? 46 : 62);
    config_["query_pre_attn_scalar"] = largest ? config_["hidden_size"].get<int64_t>() /
                                                     config_["num_attention_heads"].get<int64_t>()
                                               : head_dim_;
    // A cap that is absent is none; the class's default would be one.
    for (const char* cap : {"attn_logit_softcapping", "final_logit_softcapping"}) {
      if (!config_.contains(cap)) config_[cap] = nullptr;
    }
    if (architecture_.name == "gemma2") return absl::OkStatus();
    if (!config_.contains("rope_local_base_freq")) config_["rope_local_base_freq"] = 10000.0;
    MILLRACE_ASSIGN_OR_RETURN(const std::optional<int64_t> pattern,
                              Whole("attention.sliding_window_pattern"));
    config_["sliding_window_pattern"] = pattern.value_or(6);
    return absl::OkStatus();
  }

  absl::Status CheckNoExperts() {
    for (const absl::string_view key : {"expert_count", "expert_used_count"}) {
      MILLRACE_ASSIGN_OR_RETURN(const std::optional<int64_t> number, Whole(key));
      if (number.value_or(0) != 0) {
        return Error(FullKey(key), "says that there are experts, which are not supported");
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckUnknownKeys() {
    const std::string prefix = FullKey("");
    for (const auto& [key, value] : file_.metadata()) {
      if (absl::StartsWith(key, prefix) && !known_.contains(key)) {
        return Error(key, "is not supported: it may change what the model computes");
      }
    }
    return absl::OkStatus();
  }

  const GgufFile& file_;
  const Architecture& architecture_;
  json config_;
  std::set<std::string, std::less<>> known_;
  int64_t head_dim_ = 0;
};

}  // namespace

absl::StatusOr<json> GgufConfig(const GgufFile& file) {
  const auto error = [&](absl::string_view message) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": ", message));
  };
  if (const GgufValue* parts = file.FindValue("split.count"); parts && parts->whole() != 1) {
    return error("split.count says that it is one of several parts; merge them into one file");
  }
  const GgufValue* name = file.FindValue("general.architecture");
  if (!name || !name->text()) return error("general.architecture is missing or no string");
  for (const Architecture& architecture : Architectures()) {
    if (architecture.name == *name->text()) return ConfigMaker(file, architecture).Make();
  }
  return error(absl::StrCat("general.architecture \"", absl::Utf8SafeCHexEscape(*name->text()),
                            "\" is none of ", absl::StrJoin(GgufArchitectures(), ", ")));
}

}  // namespace millrace
