#include "engine/model/config_keys.h"

#include <algorithm>
#include <numeric>

namespace millrace {
namespace {

// Of every family: where the file comes from, token ids, generation, and heads for other tasks.
const std::vector<absl::string_view>& CommonIgnoredKeys() {
  static const auto* keys = new std::vector<absl::string_view>{
      "_attn_implementation",
      "_attn_implementation_autoset",
      "_commit_hash",
      "_name_or_path",
      "architectures",
      "attn_implementation",
      "auto_map",
      "bad_words_ids",
      "begin_suppress_tokens",
      "bos_token_id",
      "cache_implementation",
      "chunk_size_feed_forward",
      "decoder_start_token_id",
      "diversity_penalty",
      "do_sample",
      "dtype",
      "early_stopping",
      "encoder_no_repeat_ngram_size",
      "eos_token_id",
      "experts_implementation",
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
      "min_p",
      "model_type",
      "name_or_path",
      "no_repeat_ngram_size",
      "num_beam_groups",
      "num_beams",
      "num_labels",
      "num_return_sequences",
      "output_attentions",
      "output_hidden_states",
      "output_scores",
      "pad_token_id",
      "prefix",
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
      "tie_last_hidden_states",
      "tokenizer_class",
      "top_k",
      "top_p",
      "torch_dtype",
      "torchscript",
      "transformers.js_config",
      "transformers_version",
      "typical_p",
      "unsloth_fixed",
      "unsloth_version",
      "use_bfloat16",
      "use_cache",
  };
  return *keys;
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

std::vector<absl::string_view> KnownKeys(const FamilyKeys& family) {
  std::vector<absl::string_view> known = family.ignored;
  const auto add = [&](absl::string_view name) {
    if (!name.empty()) known.push_back(name);
  };
  for (const WholeKey& key : family.wholes) {
    add(key.name);
    add(key.alias);
  }
  for (const RealKey& key : family.reals) add(key.name);
  for (const SwitchKey& key : family.switches) add(key.name);
  add(family.activation.name);
  add(family.activation.beside);
  if (family.base.position == PositionKind::kRotary) {
    for (absl::string_view name : RopeKeyNames(family.rope)) add(name);
  }
  for (absl::string_view name : WindowKeyNames(family.window)) add(name);
  for (const DropoutKey& key : family.dropouts) add(key.name);
  for (const FixedKey& key : family.fixed) add(key.name);
  for (absl::string_view name : family.own) add(name);
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

}  // namespace millrace
