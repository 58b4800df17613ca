#include "engine/model/gguf_metadata.h"

#include <cmath>
#include <cstdint>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "engine/base/status_macros.h"
#include "engine/model/families.h"
#include "engine/model/gguf_architectures.h"
#include "engine/model/gguf_config.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using nlohmann::json;

bool IsGemma(absl::string_view architecture) {
  return architecture == "gemma2" || architecture == "gemma3";
}

// Whether all layers but each `period`th have the window.
bool HasPeriod(const ModelSpec& spec, int64_t period) {
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    if (spec.HasWindow(layer) != ((layer + 1) % period != 0)) return false;
  }
  return true;
}

// 1: no layer has the window. 0: there is none.
int64_t PeriodOf(const ModelSpec& spec) {
  if (HasPeriod(spec, 6)) return 6;  // that of the files that do not say
  for (int64_t period = 1; period <= spec.num_layers + 1; ++period) {
    if (HasPeriod(spec, period)) return period;
  }
  return 0;
}

// What an architecture's file implies and the model has otherwise; empty when nothing.
absl::string_view Obstacle(absl::string_view architecture, const ModelSpec& spec) {
  const bool is_gemma = IsGemma(architecture);
  const bool is_gpt2 = architecture == "gpt2";
  const ActivationKind activation =
      is_gemma || is_gpt2 ? ActivationKind::kGeluTanh : ActivationKind::kSilu;
  if (spec.activation != activation) return "its activation";
  const int64_t scalar = is_gemma
                             ? GemmaQueryScalar(architecture, spec.num_layers, spec.hidden_size,
                                                spec.num_heads, spec.head_dim)
                             : spec.head_dim;
  const double scale = 1.0 / std::sqrt(static_cast<double>(scalar));
  if (spec.attention_scale_by_layer || std::fabs(spec.attention_scale / scale - 1) > 1e-6) {
    return "its scale of attention";
  }
  const bool may_have_wide_heads = architecture == "llama" || architecture == "qwen3" || is_gemma;
  if (spec.query_size() != spec.hidden_size && !may_have_wide_heads) {
    return "the width of its heads (other than hidden_size / num_attention_heads)";
  }
  const bool may_have_bias = architecture == "llama" || architecture == "qwen2" || is_gpt2;
  if ((spec.attention_bias || spec.attention_output_bias) && !may_have_bias) return "its biases";
  if (architecture == "gemma2") {
    if (!spec.tied_embeddings) return "a head of its own";
    if (spec.attention_softcap == 0 || spec.logit_softcap == 0) return "the lack of soft caps";
    if (!HasPeriod(spec, 2)) return "windows in other layers than the first, third, ...";
  } else if (architecture == "gemma3") {
    if (PeriodOf(spec) == 0) return "windows without a period";
    if (spec.window_rotary && spec.window_rotary->scaling != RotaryScaling::kNone) {
      return "scaled rotary embeddings of layers with windows";
    }
  } else if (spec.window > 0 && architecture != "llama" && architecture != "phi3") {
    return "its windows";
  }
  return "";
}

}  // namespace

absl::StatusOr<GgufModel> DescribeForGguf(const ModelSpec& spec) {
  const GgufArchitecture* architecture = GgufArchitectureOf(spec.model_type);
  if (!architecture) {
    const std::string families = absl::StrJoin(GgufArchitectureTable(), ", ",
                                               [](std::string* out, const GgufArchitecture& row) {
                                                 absl::StrAppend(out, row.model_type);
                                               });
    return absl::UnimplementedError(absl::StrCat("a ", spec.model_type,
                                                 " model cannot be written as GGUF; models of ",
                                                 families, " and mistral can"));
  }
  if (const absl::string_view obstacle = Obstacle(architecture->name, spec); !obstacle.empty()) {
    return absl::UnimplementedError(
        absl::StrCat("this ", spec.model_type, " model cannot be written as GGUF: ", obstacle,
                     " has no place there; export it as a model directory"));
  }

  GgufModel model{.architecture = std::string(architecture->name), .metadata = {}, .constants = {}};
  const auto add = [&](absl::string_view key, GgufValue value) {
    model.metadata.emplace_back(absl::StrCat(model.architecture, ".", key), std::move(value));
  };
  const auto add_whole = [&](absl::string_view key, int64_t value) {
    add(key, GgufValue::Uint32(static_cast<uint32_t>(value)));
  };
  model.metadata.emplace_back("general.architecture", GgufValue::String(model.architecture));
  const json config = WriteModelConfig(spec);
  const auto find = [&](absl::string_view key) {
    const auto found = config.find(std::string(key));
    return found == config.end() ? json() : *found;
  };
  for (const GgufKey& key : architecture->wholes) {
    const json value = key.hub == "sliding_window" && spec.window == 0 ? json() : find(key.hub);
    if (!value.is_null()) add_whole(key.gguf, value.get<int64_t>());
  }
  for (const GgufKey& key : architecture->reals) {
    const json value = find(key.hub);
    if (!value.is_null()) add(key.gguf, GgufValue::Float32(value.get<float>()));
  }
  add_whole("vocab_size", spec.vocab_size);
  if (model.architecture == "gpt2") return model;

  add_whole("attention.value_length", spec.head_dim);
  if (model.architecture == "phi3" && spec.window == 0) add_whole("attention.sliding_window", 0);
  if (model.architecture == "gemma3" && spec.window > 0 && PeriodOf(spec) != 6) {
    add_whole("attention.sliding_window_pattern", PeriodOf(spec));
  }
  MILLRACE_ASSIGN_OR_RETURN(GgufRope rope, WriteGgufRope(model.architecture, spec));
  std::move(rope.metadata.begin(), rope.metadata.end(), std::back_inserter(model.metadata));
  model.constants = std::move(rope.constants);
  return model;
}

}  // namespace millrace
