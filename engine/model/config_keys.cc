#include "engine/model/config_keys.h"

#include <algorithm>
#include <numeric>

namespace millrace {
namespace {

constexpr int64_t kMostVocabulary = 1 << 24;
constexpr int64_t kMostHidden = 1 << 18;
constexpr int64_t kMostIntermediate = 1 << 22;
constexpr int64_t kMostLayers = 10'000;
constexpr int64_t kMostHeads = 1 << 14;
constexpr int64_t kMostHeadDim = 1 << 12;
constexpr int64_t kMostPositions = 1 << 24;

// Of every family: where the file comes from, token ids, generation, and heads for other tasks.
const std::vector<absl::string_view>& CommonIgnoredKeys() {
  static const auto* keys = new std::vector<absl::string_view>{
      "_attn_implementation",
      "_commit_hash",
      "_name_or_path",
      "architectures",
      "attn_implementation",
      "bad_words_ids",
      "begin_suppress_tokens",
      "bos_token_id",
      "chunk_size_feed_forward",
      "decoder_start_token_id",
      "diversity_penalty",
      "do_sample",
      "dtype",
      "early_stopping",
      "encoder_no_repeat_ngram_size",
      "eos_token_id",
      "exponential_decay_length_penalty",
      "finetuning_task",
      "forced_bos_token_id",
      "forced_eos_token_id",
      "id2label",
      "is_decoder",
      "is_llama_config",
      "label2id",
      "length_penalty",
      "max_length",
      "min_length",
      "model_type",
      "no_repeat_ngram_size",
      "num_beam_groups",
      "num_beams",
      "num_labels",
      "num_return_sequences",
      "output_attentions",
      "output_hidden_states",
      "output_scores",
      "pad_token_id",
      "pretraining_tp",
      "problem_type",
      "remove_invalid_values",
      "repetition_penalty",
      "return_dict",
      "return_dict_in_generate",
      "sep_token_id",
      "suppress_tokens",
      "task_specific_params",
      "temperature",
      "tf_legacy_loss",
      "tokenizer_class",
      "top_k",
      "top_p",
      "torch_dtype",
      "torchscript",
      "transformers_version",
      "typical_p",
      "use_bfloat16",
      "use_cache",
  };
  return *keys;
}

// Of every family: refused unless off.
const std::vector<FixedKey>& CommonFixedKeys() {
  static const auto* keys = new std::vector<FixedKey>{
      {"add_cross_attention", {false}, "cross-attention"},
      {"cross_attention_hidden_size", {}, "cross-attention"},
      {"is_encoder_decoder", {false}, "an encoder"},
      {"pruned_heads", {nlohmann::json::object()}, "pruned heads"},
      {"quantization_config", {}, "quantized weights"},
      {"tie_encoder_decoder", {false}, "an encoder"},
  };
  return *keys;
}

FamilyKeys Llama() {
  FamilyKeys family;
  family.model_type = "llama";
  family.architecture = "LlamaForCausalLM";
  family.base.model_type = "llama";
  family.wholes = {
      {"vocab_size", "", &ModelSpec::vocab_size, 32000, kMostVocabulary},
      {"hidden_size", "", &ModelSpec::hidden_size, 4096, kMostHidden},
      {"intermediate_size", "", &ModelSpec::intermediate_size, 11008, kMostIntermediate},
      {"num_hidden_layers", "", &ModelSpec::num_layers, 32, kMostLayers},
      {"num_attention_heads", "", &ModelSpec::num_heads, 32, kMostHeads},
      {"num_key_value_heads", "", &ModelSpec::num_kv_heads, 0, kMostHeads},
      {"head_dim", "", &ModelSpec::head_dim, 0, kMostHeadDim},
      {"max_position_embeddings", "", &ModelSpec::max_positions, 2048, kMostPositions},
  };
  family.reals = {
      {"rms_norm_eps", &ModelSpec::norm_epsilon, 1e-6, 1e-30, 1.0},
      {"initializer_range", &ModelSpec::initializer_range, 0.02, 0.0, 10.0},
  };
  family.switches = {
      {"attention_bias", {&ModelSpec::attention_bias, &ModelSpec::attention_output_bias}, false},
      {"mlp_bias", {&ModelSpec::mlp_bias}, false},
      {"tie_word_embeddings", {&ModelSpec::tied_embeddings}, false},
  };
  family.fixed = {
      {"hidden_act", {"silu", "swish"}, "another activation"},
      {"attention_dropout", {0.0}, "dropout"},
      {"rope_scaling", {}, "scaled rotary embedding"},
      {"partial_rotary_factor", {1.0}, "partial rotary embedding"},
      {"rope_interleaved", {false}, "interleaved rotary embedding"},
      {"sliding_window", {}, "windowed attention"},
  };
  family.ignored = {"rope_parameters", "rope_theta"};
  return family;
}

FamilyKeys Gpt2() {
  FamilyKeys family;
  family.model_type = "gpt2";
  family.architecture = "GPT2LMHeadModel";
  ModelSpec& base = family.base;
  base.model_type = "gpt2";
  base.norm = NormKind::kLayerNorm;
  base.norm_bias = true;
  base.position = PositionKind::kLearned;
  base.attention_bias = true;
  base.attention_output_bias = true;
  base.activation = ActivationKind::kGeluTanh;
  base.gated_mlp = false;
  base.mlp_bias = true;
  base.scaled_residual_init = true;
  family.wholes = {
      {"vocab_size", "", &ModelSpec::vocab_size, 50257, kMostVocabulary},
      {"n_embd", "hidden_size", &ModelSpec::hidden_size, 768, kMostHidden},
      {"n_inner", "", &ModelSpec::intermediate_size, 0, kMostIntermediate},
      {"n_layer", "num_hidden_layers", &ModelSpec::num_layers, 12, kMostLayers},
      {"n_head", "num_attention_heads", &ModelSpec::num_heads, 12, kMostHeads},
      {"n_positions", "max_position_embeddings", &ModelSpec::max_positions, 1024, kMostPositions},
  };
  family.reals = {
      {"layer_norm_epsilon", &ModelSpec::norm_epsilon, 1e-5, 1e-30, 1.0},
      {"initializer_range", &ModelSpec::initializer_range, 0.02, 0.0, 10.0},
  };
  family.switches = {{"tie_word_embeddings", {&ModelSpec::tied_embeddings}, true}};
  family.fixed = {
      {"activation_function", {"gelu_new", "gelu_pytorch_tanh"}, "another activation"},
      {"resid_pdrop", {0.0}, "dropout"},
      {"embd_pdrop", {0.0}, "dropout"},
      {"attn_pdrop", {0.0}, "dropout"},
      {"scale_attn_weights", {true}, "attention without scaling"},
      {"scale_attn_by_inverse_layer_idx", {false}, "attention scaled by layer"},
  };
  // n_ctx is what older configs say beside n_positions. reorder_and_upcast_attn is about rounding.
  family.ignored = {"n_ctx",
                    "reorder_and_upcast_attn",
                    "summary_activation",
                    "summary_first_dropout",
                    "summary_proj_to_labels",
                    "summary_type",
                    "summary_use_proj"};
  return family;
}

// Levenshtein distance.
int64_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<int64_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    int64_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const int64_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

absl::string_view FamilyKeys::KeyOf(int64_t ModelSpec::*member) const {
  for (const WholeKey& key : wholes) {
    if (key.member == member) return key.name;
  }
  return "";
}

const std::vector<FamilyKeys>& AllFamilyKeys() {
  static const auto* families = [] {
    auto* all = new std::vector<FamilyKeys>{Llama(), Gpt2()};
    for (FamilyKeys& family : *all) {
      family.fixed.insert(family.fixed.end(), CommonFixedKeys().begin(), CommonFixedKeys().end());
    }
    return all;
  }();
  return *families;
}

std::vector<absl::string_view> KnownKeys(const FamilyKeys& family) {
  std::vector<absl::string_view> known = family.ignored;
  for (const WholeKey& key : family.wholes) {
    known.push_back(key.name);
    if (!key.alias.empty()) known.push_back(key.alias);
  }
  for (const RealKey& key : family.reals) known.push_back(key.name);
  for (const SwitchKey& key : family.switches) known.push_back(key.name);
  for (const FixedKey& key : family.fixed) known.push_back(key.name);
  known.insert(known.end(), CommonIgnoredKeys().begin(), CommonIgnoredKeys().end());
  return known;
}

absl::string_view ClosestKey(absl::string_view key, const std::vector<absl::string_view>& known) {
  absl::string_view closest;
  int64_t least = static_cast<int64_t>(key.size()) / 3 + 1;
  for (absl::string_view candidate : known) {
    if (const int64_t distance = EditDistance(key, candidate); distance < least) {
      least = distance;
      closest = candidate;
    }
  }
  return closest;
}

std::string Show(const nlohmann::json& value) {
  constexpr size_t kMost = 60;
  std::string text =
      value.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

}  // namespace millrace
