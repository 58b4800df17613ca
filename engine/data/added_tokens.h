// Tokens beside the model's: whole strings, such as "<|endoftext|>", found in text before anything
// else.
#ifndef MILLRACE_ENGINE_DATA_ADDED_TOKENS_H_
#define MILLRACE_ENGINE_DATA_ADDED_TOKENS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace millrace {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // only where no word character is on either side
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space behind it
  bool normalized = false;   // looked for in normalized text rather than in the text as it is
  bool special = false;
};

// The file's "added_tokens", null for none. Contents of 1 to 1024 bytes; ids below 2^24.
absl::StatusOr<std::vector<AddedToken>> ParseAddedTokens(const nlohmann::json& value);

// Finds some added tokens in text. Immutable; any thread may call.
class AddedTokenFinder {
 public:
  // Makes a token be found by `content`, which for a normalized token is its normalized content.
  // Nothing for an empty one.
  void Add(const AddedToken& token, absl::string_view content);

  // Part of a text; `id` -1: text between tokens.
  struct Part {
    size_t begin, end;
    int32_t id;
  };
  // Replaces `*parts` by those of `text`, well-formed UTF-8: from left to right, the longest token
  // at a place first. Parts of text are not empty.
  void Split(absl::string_view text, std::vector<Part>* parts) const;

 private:
  // Index in tokens_ of the longest that `text` has at `at`, and its end; -1 for none.
  int Longest(absl::string_view text, size_t at, size_t* end) const;

  std::vector<AddedToken> tokens_;
  std::array<bool, 256> begins_{};
  // A trie: (node << 8 | byte) to node; node 0 is the root.
  absl::flat_hash_map<uint64_t, uint32_t> edges_;
  std::vector<int> token_of_node_ = {-1};
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_ADDED_TOKENS_H_
