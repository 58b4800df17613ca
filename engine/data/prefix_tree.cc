#include "engine/data/prefix_tree.h"

#include <algorithm>

namespace millrace {

PrefixTree PrefixTree::Build(std::vector<std::pair<std::string, int32_t>> strings) {
  PrefixTree tree;
  if (strings.empty()) return tree;
  std::sort(strings.begin(), strings.end());
  // Nodes in the order of their depth: each with the strings [begin, end) that pass through it.
  struct Range {
    size_t begin, end, depth;
  };
  std::vector<Range> ranges = {{0, strings.size(), 0}};
  tree.nodes_.emplace_back();
  tree.labels_.push_back('\0');
  for (size_t node = 0; node < ranges.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    // The string that ends here is the first of those that begin with it.
    if (strings[begin].first.size() == depth) tree.nodes_[node].value = strings[begin++].second;
    tree.nodes_[node].first_child = static_cast<uint32_t>(ranges.size());
    while (begin < end) {
      const char label = strings[begin].first[depth];
      size_t next = begin;
      while (next < end && strings[next].first[depth] == label) ++next;
      if (node == 0) tree.roots_[static_cast<unsigned char>(label)] = ranges.size();
      ranges.push_back({begin, next, depth + 1});
      tree.nodes_.emplace_back();
      tree.labels_.push_back(label);
      ++tree.nodes_[node].children;
      begin = next;
    }
  }
  return tree;
}

}  // namespace millrace
