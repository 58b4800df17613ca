#include "engine/model/gguf_config.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "engine/base/status_macros.h"
#include "engine/model/gguf_architectures.h"
#include "engine/model/gguf_keys.h"
#include "engine/model/gguf_names.h"
#include "engine/model/gguf_rope.h"

namespace millrace {
namespace {

using nlohmann::json;

// Makes one file's config.
class ConfigMaker {
 public:
  ConfigMaker(const GgufFile& file, const GgufArchitecture& architecture)
      : keys_(file, architecture.name), architecture_(architecture) {}

  absl::StatusOr<json> Make() {
    config_ = architecture_.constants;
    config_["model_type"] = std::string(architecture_.model_type);
    for (const GgufKey& key : architecture_.wholes) {
      MILLRACE_ASSIGN_OR_RETURN(const std::optional<int64_t> number, keys_.Whole(key.gguf));
      MILLRACE_RETURN_IF_ERROR(Keep(key, number));
    }
    for (const GgufKey& key : architecture_.reals) {
      MILLRACE_ASSIGN_OR_RETURN(const std::optional<double> number, keys_.Real(key.gguf));
      MILLRACE_RETURN_IF_ERROR(Keep(key, number));
    }
    for (const auto& [key, tensor] : architecture_.switches) {
      config_[std::string(key)] = keys_.file().FindTensor(tensor) != nullptr;
    }
    MILLRACE_RETURN_IF_ERROR(TakeEmbedding());
    TakeTokens();
    if (architecture_.name != "gpt2") {
      MILLRACE_RETURN_IF_ERROR(TakeHeads());
      MILLRACE_RETURN_IF_ERROR(ReadGgufRope(keys_, config_));
    }
    TakeWindow();
    MILLRACE_RETURN_IF_ERROR(TakeGemma());
    MILLRACE_RETURN_IF_ERROR(CheckNoExperts());
    MILLRACE_RETURN_IF_ERROR(keys_.CheckUnknown());
    return std::move(config_);
  }

 private:
  template <typename Number>
  absl::Status Keep(const GgufKey& key, const std::optional<Number>& number) {
    if (number) {
      config_[std::string(key.hub)] = *number;
    } else if (key.need == GgufNeed::kRequired) {
      return keys_.Error(keys_.FullKey(key.gguf), "is missing");
    }
    return absl::OkStatus();
  }

  absl::Status TakeEmbedding() {
    const GgufFile& file = keys_.file();
    const GgufTensor* embedding = file.FindTensor("token_embd.weight");
    if (!embedding || embedding->shape.size() != 2) {
      return keys_.Error("tensor \"token_embd.weight\"", "is missing or no matrix");
    }
    config_["vocab_size"] = embedding->shape[0];
    keys_.Find("vocab_size");
    // Some converters write a tied head out.
    const GgufTensor* head = file.FindTensor("output.weight");
    config_["tie_word_embeddings"] =
        !head || (head->type == embedding->type && head->shape == embedding->shape &&
                  file.BytesOf(*head) == file.BytesOf(*embedding));
    return absl::OkStatus();
  }

  void TakeTokens() {
    for (const absl::string_view token : {"bos", "eos"}) {
      const GgufValue* value =
          keys_.file().FindValue(absl::StrCat("tokenizer.ggml.", token, "_token_id"));
      if (value && value->whole()) config_[absl::StrCat(token, "_token_id")] = *value->whole();
    }
  }

  absl::Status TakeHeads() {
    const int64_t heads = config_["num_attention_heads"].get<int64_t>();
    const int64_t hidden = config_["hidden_size"].get<int64_t>();
    if (heads < 1) return keys_.Error(keys_.FullKey("attention.head_count"), "is zero");
    if (!config_.contains("num_key_value_heads")) config_["num_key_value_heads"] = heads;
    if (!config_.contains("rope_theta")) config_["rope_theta"] = 10000.0;
    const int64_t head_dim = config_.value("head_dim", hidden / heads);
    if (head_dim < 1) return keys_.Error(keys_.FullKey("attention.key_length"), "is zero");
    config_["head_dim"] = head_dim;
    MILLRACE_ASSIGN_OR_RETURN(const std::optional<int64_t> value_width,
                              keys_.Whole("attention.value_length"));
    if (value_width && *value_width != head_dim) {
      return keys_.Error(keys_.FullKey("attention.value_length"),
                         absl::StrCat("(", *value_width, ") differs from the keys' width (",
                                      head_dim, "), which is not supported"));
    }
    return absl::OkStatus();
  }

  // Zero is no window, and a llama with one is a Mistral.
  void TakeWindow() {
    if (config_.contains("sliding_window") && config_["sliding_window"] == 0) {
      config_.erase("sliding_window");
    }
    if (architecture_.name == "llama" && config_.contains("sliding_window")) {
      config_["model_type"] = "mistral";
    }
  }

  absl::Status TakeGemma() {
    if (architecture_.name != "gemma2" && architecture_.name != "gemma3") return absl::OkStatus();
    config_["query_pre_attn_scalar"] = GemmaQueryScalar(
        architecture_.name, config_["num_hidden_layers"].get<int64_t>(),
        config_["hidden_size"].get<int64_t>(), config_["num_attention_heads"].get<int64_t>(),
        config_["head_dim"].get<int64_t>());
    MILLRACE_ASSIGN_OR_RETURN(const std::optional<int64_t> pattern,
                              keys_.Whole("attention.sliding_window_pattern"));
    if (architecture_.name == "gemma2") {
      if (pattern.value_or(2) == 2) return absl::OkStatus();
      return keys_.Error(keys_.FullKey("attention.sliding_window_pattern"),
                         "is not 2, which is not supported");
    }
    if (!config_.contains("rope_local_base_freq")) config_["rope_local_base_freq"] = 10000.0;
    // Without a window all layers see everything.
    const bool has_window = config_.contains("sliding_window");
    config_["sliding_window_pattern"] = has_window ? pattern.value_or(6) : 1;
    return absl::OkStatus();
  }

  absl::Status CheckNoExperts() {
    for (const absl::string_view key : {"expert_count", "expert_used_count"}) {
      MILLRACE_ASSIGN_OR_RETURN(const std::optional<int64_t> number, keys_.Whole(key));
      if (number.value_or(0) != 0) {
        return keys_.Error(keys_.FullKey(key),
                           "says that there are experts, which are not supported");
      }
    }
    return absl::OkStatus();
  }

  GgufKeys keys_;
  const GgufArchitecture& architecture_;
  json config_;
};

}  // namespace

int64_t GemmaQueryScalar(absl::string_view architecture, int64_t layers, int64_t hidden,
                         int64_t heads, int64_t head_dim) {
  const bool is_largest = layers == (architecture == "gemma2" ? 46 : 62);
  return is_largest ? hidden / heads : head_dim;
}

absl::StatusOr<json> GgufConfig(const GgufFile& file) {
  const auto error = [&](absl::string_view message) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": ", message));
  };
  if (const GgufValue* parts = file.FindValue("split.count"); parts && parts->whole() != 1) {
    return error(
        "split.count says that it is one of several parts; make one file of them with llama.cpp's "
        "llama-gguf-split --merge FIRST_PART OUTPUT");
  }
  const GgufValue* name = file.FindValue("general.architecture");
  if (!name || !name->text()) return error("general.architecture is missing or no string");
  for (const GgufArchitecture& architecture : GgufArchitectureTable()) {
    if (architecture.name == *name->text()) return ConfigMaker(file, architecture).Make();
  }
  return error(absl::StrCat("general.architecture \"", absl::Utf8SafeCHexEscape(*name->text()),
                            "\" is none of ", absl::StrJoin(GgufArchitectures(), ", ")));
}

}  // namespace millrace
