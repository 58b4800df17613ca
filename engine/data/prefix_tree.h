// A set of byte strings, each with a value, in which those are found that a text begins with.
#ifndef MILLRACE_ENGINE_DATA_PREFIX_TREE_H_
#define MILLRACE_ENGINE_DATA_PREFIX_TREE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace millrace {

// Immutable but for Build; any thread may call.
class PrefixTree {
 public:
  // Strings are not empty and all different; values are not negative. At most 2^24 strings.
  static PrefixTree Build(std::vector<std::pair<std::string, int32_t>> strings);

  bool empty() const { return nodes_.empty(); }
  // Whether a string begins with this byte.
  bool Begins(char byte) const { return !empty() && roots_[static_cast<unsigned char>(byte)] > 0; }

  // Calls visit(length, value) for each string that `text` begins with, the shortest first.
  template <typename Visit>
  void ForPrefixes(absl::string_view text, Visit visit) const {
    if (text.empty() || empty()) return;
    uint32_t node = roots_[static_cast<unsigned char>(text[0])];
    for (size_t length = 1; node > 0; ++length) {
      const Node& at = nodes_[node];
      if (at.value >= 0) visit(length, at.value);
      if (length == text.size()) return;
      const char* labels = labels_.data() + at.first_child;
      const void* found = std::memchr(labels, text[length], at.children);
      if (found == nullptr) return;
      node = at.first_child + static_cast<uint32_t>(static_cast<const char*>(found) - labels);
    }
  }

  // Length of the longest string that `text` begins with and its value; 0 for none.
  size_t Longest(absl::string_view text, int32_t* value) const {
    size_t longest = 0;
    ForPrefixes(text, [&](size_t length, int32_t found) {
      longest = length;
      *value = found;
    });
    return longest;
  }

 private:
  // Children of a node lie side by side; a node's label is the byte that leads to it.
  struct Node {
    uint32_t first_child = 0;
    uint32_t children = 0;
    int32_t value = -1;
  };

  std::vector<Node> nodes_;  // 0 is the root
  std::string labels_;
  std::array<uint32_t, 256> roots_{};  // children of the root by their bytes; 0 for none
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_PREFIX_TREE_H_
