// Tokenizers from the files of model directories: Hugging Face's tokenizer.json, SentencePiece's
// tokenizer.model.
//
//   MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(model_folder));
//
// Tokens are those of `Tokenizer.encode(text, add_special_tokens=False)` of the `tokenizers`
// library: added tokens inside text are found; what the post-processor would put around it is not
// added (begin_of_document() is what it puts before a text), nor are truncation and padding
// applied. Ill-formed UTF-8 is tokenized as if U+FFFD stood for each maximal ill-formed part, as
// bytes.decode(errors="replace") would have it. Characters newer than a library's Unicode tables
// can be classed otherwise by the other's.
//
// Of a tokenizer.model they are those of SentencePiece (sentencepiece_tokenizer.h).
//
// Decode() gives what `decode(tokens, skip_special_tokens=False)` does, but the bytes of a
// character that is cut, not U+FFFD for it.
#ifndef MILLRACE_ENGINE_DATA_TOKENIZER_FILE_H_
#define MILLRACE_ENGINE_DATA_TOKENIZER_FILE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/data/tokenizer.h"

namespace millrace {

// Reads `path`, a tokenizer.json, a tokenizer.model, or the folder that has one (the former, where
// both are there). The token `end_of_document` ends documents; where it is empty, the "eos_token"
// of the tokenizer_config.json beside the file does, else the first there is of <|endoftext|>,
// <|end_of_text|>, </s> and <eos>, or the one that a tokenizer.model names itself. The tokenizer's
// name has the file's hash in it.
//
// NOT_FOUND for a folder without a tokenizer. INVALID_ARGUMENT names the file, the part of it and
// what is malformed or not supported there: what is not known is never passed over. Files above 128
// MiB are refused.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& path,
                                                         absl::string_view end_of_document = "");

// The same from the text of a tokenizer.json. `name` becomes the tokenizer's.
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTokenizer(absl::string_view text, std::string name,
                                                          absl::string_view end_of_document);

// The name that LoadTokenizer gives to the tokenizer of a tokenizer.json.
std::string NameOfTokenizerJson(absl::string_view text, absl::string_view end_of_document);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_TOKENIZER_FILE_H_
