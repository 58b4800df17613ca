// Cutting text into the pieces inside which tokens are formed.
#ifndef MILLRACE_ENGINE_DATA_PRE_TOKENIZER_H_
#define MILLRACE_ENGINE_DATA_PRE_TOKENIZER_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/data/regex.h"
#include "nlohmann/json.hpp"

namespace millrace {

// Bytes [begin, end) of a text.
struct TextRange {
  size_t begin, end;
};

// Pieces of a text, in order; none is empty.
struct TextPieces {
  absl::string_view text;
  std::vector<TextRange> pieces;
  // The segment begins where the whole document does.
  bool at_document_begin = false;
  // Where `text` lies when a step has changed it.
  std::string storage;
};

// Immutable; any thread may call.
class PreTokenizerStep {
 public:
  virtual ~PreTokenizerStep() = default;
  virtual void Apply(TextPieces* pieces, RegexScratch* scratch) const = 0;
};

class PreTokenizer {
 public:
  // `value`: the file's "pre_tokenizer", null for none. Known: ByteLevel (only as the last step),
  // Split, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit, Sequence.
  static absl::StatusOr<PreTokenizer> Parse(const nlohmann::json& value);

  // Whether the model sees bytes (ByteLevel) rather than characters.
  bool byte_level() const { return byte_level_; }
  // Cuts `text`, well-formed UTF-8 that stays where it is, into `pieces`.
  void Apply(absl::string_view text, bool at_document_begin, TextPieces* pieces,
             RegexScratch* scratch) const;

 private:
  absl::Status AddSteps(const nlohmann::json& value, int depth);

  std::vector<std::unique_ptr<const PreTokenizerStep>> steps_;
  bool byte_level_ = false;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_PRE_TOKENIZER_H_
