// Text to tokens and back.
//
//   MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer, MakeTokenizer("byte"));
//   tokenizer->Encode("Once", &tokens);
#ifndef MILLRACE_ENGINE_DATA_TOKENIZER_H_
#define MILLRACE_ENGINE_DATA_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace millrace {

// Any thread may call.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Tokenizers of the same name give the same tokens. What MakeTokenizer takes, where that made it.
  virtual std::string name() const = 0;
  // Tokens are 0 to vocab_size() - 1.
  virtual int64_t vocab_size() const = 0;
  // The token before the first one of each document, and of a prompt; nothing where texts begin
  // with none. Encode does not give it.
  virtual std::optional<int32_t> begin_of_document() const { return std::nullopt; }
  // The token after the last one of each document. Encode gives it only where a tokenizer file has
  // a special token for it and the text spells that out.
  virtual int32_t end_of_document() const = 0;

  // Appends the tokens of `text`.
  virtual void Encode(absl::string_view text, std::vector<int32_t>* tokens) const = 0;
  // The text of `tokens`; end_of_document and tokens outside the vocabulary give nothing. May be
  // cut inside a UTF-8 sequence where the tokens are.
  virtual std::string Decode(absl::Span<const int32_t> tokens) const = 0;
};

// The tokens of the beginning of a document, which a model is to go on from; where there would be
// none, the end of the document before.
std::vector<int32_t> EncodePrompt(const Tokenizer& tokenizer, absl::string_view text);

// INVALID_ARGUMENT for a name that is not known, with those that are. An empty name is "byte".
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeTokenizer(absl::string_view name);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_TOKENIZER_H_
