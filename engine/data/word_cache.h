// The tokens of words seen lately: natural text repeats its words.
#ifndef MILLRACE_ENGINE_DATA_WORD_CACHE_H_
#define MILLRACE_ENGINE_DATA_WORD_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace millrace {

// 65,536 places of 64 bytes; a word's place is given by its hash, and the latest word there stays.
// Words of more than 30 bytes or 8 tokens are not kept. One thread at a time.
class WordCache {
 public:
  WordCache() : entries_(kEntries) {}

  // Appends the tokens of `word` if it is here.
  bool Find(absl::string_view word, std::vector<int32_t>* tokens) const {
    if (word.size() > kWordBytes) return false;
    const Entry& entry = entries_[PlaceOf(word)];
    if (entry.length != word.size() || std::memcmp(entry.word, word.data(), word.size()) != 0) {
      return false;
    }
    tokens->insert(tokens->end(), entry.tokens, entry.tokens + entry.count);
    return true;
  }

  void Keep(absl::string_view word, absl::Span<const int32_t> tokens) {
    if (word.empty() || word.size() > kWordBytes || tokens.size() > kTokens) return;
    Entry& entry = entries_[PlaceOf(word)];
    entry.length = static_cast<uint8_t>(word.size());
    entry.count = static_cast<uint8_t>(tokens.size());
    std::memcpy(entry.word, word.data(), word.size());
    if (!tokens.empty()) std::memcpy(entry.tokens, tokens.data(), tokens.size() * sizeof(int32_t));
  }

 private:
  static constexpr size_t kEntries = 65536, kWordBytes = 30, kTokens = 8;
  struct alignas(64) Entry {
    uint8_t length = 0, count = 0;
    char word[kWordBytes];
    int32_t tokens[kTokens];
  };
  static_assert(sizeof(Entry) == 64);

  static size_t PlaceOf(absl::string_view word) {
    return absl::Hash<absl::string_view>()(word) % kEntries;
  }

  std::vector<Entry> entries_;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_WORD_CACHE_H_
