// What SentencePiece makes of text before it is cut: characters replaced by a table, white space
// trimmed and written as "▁".
#ifndef MILLRACE_ENGINE_DATA_SENTENCEPIECE_NORMALIZER_H_
#define MILLRACE_ENGINE_DATA_SENTENCEPIECE_NORMALIZER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/data/prefix_tree.h"
#include "engine/data/sentencepiece_file.h"

namespace millrace {

// A table of what strings become: u32 size of the first part, little endian; a double-array trie
// (github.com/s-yata/darts-clone) of the strings, whose values are places in the second part, where
// what they become ends with a NUL. Whatever the table says, nothing outside it is read.
class CharacterMap {
 public:
  // INVALID_ARGUMENT for a table whose parts do not fit in it. Empty for an empty one.
  static absl::StatusOr<CharacterMap> Parse(absl::string_view table);

  bool empty() const { return units_.empty(); }
  // Length of the longest string of the table that `text` begins with, and what it becomes; 0 for
  // none.
  size_t Find(absl::string_view text, absl::string_view* becomes) const;

 private:
  std::vector<uint32_t> units_;
  std::string texts_;
};

// Immutable; any thread may call.
class SentencePieceNormalizer {
 public:
  // What begins with one of `fixed` is left as it is, the longest first.
  static absl::StatusOr<SentencePieceNormalizer> Create(const SentencePieceModel& model,
                                                        PrefixTree fixed);

  // Replaces `*normalized` by `text`, well-formed UTF-8, normalized.
  void Apply(absl::string_view text, std::string* normalized) const;

  const PrefixTree& fixed() const { return fixed_; }

 private:
  // The begin of `text` (not empty) normalized, and its length.
  std::pair<absl::string_view, size_t> Prefix(absl::string_view text) const;

  CharacterMap map_;
  PrefixTree fixed_;
  absl::string_view space_;
  bool prefix_ = false, suffix_ = false, trim_ = false;
};

// Bytes of the character that `text` (not empty) begins with, by its first byte, whatever follows.
size_t CharacterLength(absl::string_view text);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_SENTENCEPIECE_NORMALIZER_H_
