// The names of llama.cpp for ways to cut text (tokenizer.ggml.pre), and what Hugging Face calls
// them.
#ifndef MILLRACE_ENGINE_DATA_GGUF_PRE_TOKENIZERS_H_
#define MILLRACE_ENGINE_DATA_GGUF_PRE_TOKENIZERS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace millrace {

struct GgufPreTokenizer {
  absl::string_view name;
  // Split at single digits first.
  bool digits = false;
  // Split by this; empty for the pattern of ByteLevel itself, GPT-2's.
  absl::string_view pattern;
  bool nfc = false;            // the normalizer
  bool ignore_merges = false;  // of the model
};

// nullptr for a name that is not known.
const GgufPreTokenizer* FindGgufPreTokenizer(absl::string_view name);
// All names that are known, for errors.
std::string GgufPreTokenizerNames();

// "normalizer" and "pre_tokenizer" of a tokenizer.json.
nlohmann::json NormalizerOf(const GgufPreTokenizer& pre);
nlohmann::json PreTokenizerOf(const GgufPreTokenizer& pre);

// The one that a tokenizer.json means. INVALID_ARGUMENT names the part that none has.
absl::StatusOr<const GgufPreTokenizer*> MatchGgufPreTokenizer(const nlohmann::json& tokenizer);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_GGUF_PRE_TOKENIZERS_H_
