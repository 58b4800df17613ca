#include "engine/model/gguf_names.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

// A module in both forms; "{}" is the block's number. Suffixes (".weight", ".bias") are the same.
struct Module {
  absl::string_view gguf, hub;
  GgufChange change = GgufChange::kNone;
};

struct Architecture {
  absl::string_view name;
  std::vector<Module> modules;
};

std::vector<Module> operator+(std::vector<Module> a, const std::vector<Module>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const std::vector<Architecture>& Architectures() {
  static const auto* architectures = [] {
    const auto ends = [](GgufChange norm) {
      return std::vector<Module>{{"token_embd", "model.embed_tokens"},
                                 {"output_norm", "model.norm", norm},
                                 {"output", "lm_head"}};
    };
    const auto attention = [](GgufChange query, GgufChange key) {
      return std::vector<Module>{{"blk.{}.attn_q", "model.layers.{}.self_attn.q_proj", query},
                                 {"blk.{}.attn_k", "model.layers.{}.self_attn.k_proj", key},
                                 {"blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"},
                                 {"blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"}};
    };
    const auto head_norms = [](GgufChange norm) {
      return std::vector<Module>{{"blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm", norm},
                                 {"blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm", norm}};
    };
    const std::vector<Module> mlp = {{"blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj"},
                                     {"blk.{}.ffn_up", "model.layers.{}.mlp.up_proj"},
                                     {"blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"}};
    const std::vector<Module> norms = {
        {"blk.{}.attn_norm", "model.layers.{}.input_layernorm"},
        {"blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm"}};
    constexpr GgufChange kNone = GgufChange::kNone, kPlusOne = GgufChange::kPlusOne;
    const std::vector<Module> gemma_norms = {
        {"blk.{}.attn_norm", "model.layers.{}.input_layernorm", kPlusOne},
        {"blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm", kPlusOne},
        {"blk.{}.ffn_norm", "model.layers.{}.pre_feedforward_layernorm", kPlusOne},
        {"blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm", kPlusOne}};
    return new std::vector<Architecture>{
        {"llama", ends(kNone) + norms + mlp +
                      attention(GgufChange::kInterleavedQuery, GgufChange::kInterleavedKey)},
        {"qwen2", ends(kNone) + norms + mlp + attention(kNone, kNone)},
        {"qwen3", ends(kNone) + norms + mlp + attention(kNone, kNone) + head_norms(kNone)},
        {"gemma2", ends(kPlusOne) + gemma_norms + mlp + attention(kNone, kNone)},
        {"gemma3",
         ends(kPlusOne) + gemma_norms + mlp + attention(kNone, kNone) + head_norms(kPlusOne)},
        {"phi3", ends(kNone) + norms +
                     std::vector<Module>{{"blk.{}.attn_qkv", "model.layers.{}.self_attn.qkv_proj"},
                                         {"blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"},
                                         {"blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"},
                                         {"blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"},
                                         {"blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"},
                                         {"blk.{}.ffn_up", "model.layers.{}.mlp.gate_up_proj"},
                                         {"blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"}}},
        {"gpt2",
         {{"token_embd", "transformer.wte"},
          {"position_embd", "transformer.wpe"},
          {"output_norm", "transformer.ln_f"},
          {"output", "lm_head"},
          {"blk.{}.attn_norm", "transformer.h.{}.ln_1"},
          {"blk.{}.attn_qkv", "transformer.h.{}.attn.c_attn", GgufChange::kTransposed},
          {"blk.{}.attn_output", "transformer.h.{}.attn.c_proj", GgufChange::kTransposed},
          {"blk.{}.ffn_norm", "transformer.h.{}.ln_2"},
          {"blk.{}.ffn_up", "transformer.h.{}.mlp.c_fc", GgufChange::kTransposed},
          {"blk.{}.ffn_down", "transformer.h.{}.mlp.c_proj", GgufChange::kTransposed}}},
    };
  }();
  return *architectures;
}

// `name` fits `pattern`, whose "{}" stands for `number`.
bool Fits(absl::string_view name, absl::string_view pattern, absl::string_view& number) {
  const size_t hole = pattern.find("{}");
  if (hole == absl::string_view::npos) return name == pattern;
  const absl::string_view before = pattern.substr(0, hole), after = pattern.substr(hole + 2);
  if (name.size() <= pattern.size() - 2 || !absl::StartsWith(name, before) ||
      !absl::EndsWith(name, after)) {
    return false;
  }
  number = name.substr(hole, name.size() - (pattern.size() - 2));
  return number.size() <= 6 &&
         std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::optional<GgufName> Translate(absl::string_view architecture, absl::string_view name,
                                  absl::string_view Module::*from, absl::string_view Module::*to) {
  const size_t dot = name.rfind('.');
  if (dot == absl::string_view::npos) return std::nullopt;
  const absl::string_view suffix = name.substr(dot);
  if (suffix != ".weight" && suffix != ".bias") return std::nullopt;
  for (const Architecture& candidate : Architectures()) {
    if (candidate.name != architecture) continue;
    for (const Module& module : candidate.modules) {
      absl::string_view number;
      if (!Fits(name.substr(0, dot), module.*from, number)) continue;
      const absl::string_view pattern = module.*to;
      const size_t hole = pattern.find("{}");
      GgufName result;
      result.name =
          hole == absl::string_view::npos
              ? absl::StrCat(pattern, suffix)
              : absl::StrCat(pattern.substr(0, hole), number, pattern.substr(hole + 2), suffix);
      const bool applies = module.change != GgufChange::kTransposed || suffix == ".weight";
      result.change = applies ? module.change : GgufChange::kNone;
      return result;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<GgufName> HubNameOf(absl::string_view architecture, absl::string_view gguf_name) {
  return Translate(architecture, gguf_name, &Module::gguf, &Module::hub);
}

std::optional<GgufName> GgufNameOf(absl::string_view architecture, absl::string_view hub_name) {
  return Translate(architecture, hub_name, &Module::hub, &Module::gguf);
}

bool IsGgufConstant(absl::string_view gguf_name) {
  return gguf_name == "rope_freqs.weight" || gguf_name == "rope_factors_long.weight" ||
         gguf_name == "rope_factors_short.weight";
}

std::vector<std::string> GgufArchitectures() {
  std::vector<std::string> names;
  for (const Architecture& architecture : Architectures()) names.emplace_back(architecture.name);
  return names;
}

}  // namespace millrace
