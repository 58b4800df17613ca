// Tokenizers from SentencePiece's model files.
#ifndef MILLRACE_ENGINE_DATA_SENTENCEPIECE_TOKENIZER_H_
#define MILLRACE_ENGINE_DATA_SENTENCEPIECE_TOKENIZER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/data/sentencepiece_file.h"
#include "engine/data/tokenizer.h"

namespace millrace {

// Tokens are those of `SentencePieceProcessor.encode(text)`: control symbols (<s>) are not found in
// text, and none is put around it. Documents begin with the piece that the model begins texts with,
// where it has one, and end with the piece `end_of_document`, or with the file's own end where that
// is empty.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeSentencePieceTokenizer(
    SentencePieceModel model, std::string name, absl::string_view end_of_document);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_SENTENCEPIECE_TOKENIZER_H_
