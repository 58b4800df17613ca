// The tokenizer in the metadata of a GGUF file (tokenizer.ggml.*), as plain data: made into a
// tokenizer.json, and made from a tokenizer's files.
//
//   MILLRACE_ASSIGN_OR_RETURN(TokenizerFiles files, FilesOfGgufTokenizer(gguf));
//   MILLRACE_ASSIGN_OR_RETURN(auto tokenizer, ParseTokenizer(files.tokenizer_json, name,
//   files.end));
#ifndef MILLRACE_ENGINE_DATA_GGUF_TOKENIZER_H_
#define MILLRACE_ENGINE_DATA_GGUF_TOKENIZER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace millrace {

// Each member is the value of the key in its comment, below tokenizer.ggml.
struct GgufTokenizer {
  // general.architecture. The vocabularies of gemma, gemma2 and gemma3 are written otherwise.
  std::string architecture;
  std::string model;                  // model: "gpt2" (byte-level BPE) or "llama" (SentencePiece's)
  std::string pre;                    // pre: how text is cut, of "gpt2" only
  std::vector<std::string> tokens;    // tokens, by id
  std::vector<float> scores;          // scores; empty, or one a token ("llama")
  std::vector<int32_t> token_types;   // token_type, as SentencePieceModel::Kind; empty: all normal
  std::vector<std::string> merges;    // merges: "left right" ("gpt2")
  std::optional<int64_t> begin_id;    // bos_token_id
  std::optional<int64_t> end_id;      // eos_token_id
  std::optional<int64_t> unknown_id;  // unknown_token_id
  std::optional<int64_t> padding_id;  // padding_token_id
  std::optional<bool> add_begin;      // add_bos_token
  std::optional<bool> add_space_prefix;          // add_space_prefix
  std::optional<bool> remove_extra_whitespaces;  // remove_extra_whitespaces
  std::string chat_template;                     // tokenizer.chat_template
};

// A tokenizer as a model directory has it.
struct TokenizerFiles {
  std::string tokenizer_json, tokenizer_config_json;
  // The token that ends documents.
  std::string end;
};

// The same tokens as Hugging Face gives for the model that the file was made from. INVALID_ARGUMENT
// names the key that contradicts others, or whose value is not supported: other models, ways of
// cutting that are not known.
absl::StatusOr<TokenizerFiles> FilesOfGgufTokenizer(const GgufTokenizer& gguf);

// The other way round: from the content of a tokenizer.json or tokenizer.model and of the
// tokenizer_config.json beside it ("" for none). `vocab_size` is the model's: ids that no token has
// become unused tokens. INVALID_ARGUMENT names what GGUF has no word for: normalizers and
// pre-tokenizers that llama.cpp does not know, unigram models, added tokens that take spaces...
absl::StatusOr<GgufTokenizer> GgufTokenizerOf(absl::string_view tokenizer,
                                              absl::string_view tokenizer_config,
                                              int64_t vocab_size);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_GGUF_TOKENIZER_H_
