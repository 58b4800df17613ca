#include "engine/data/prefix_tree.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

std::vector<std::pair<size_t, int32_t>> Found(const PrefixTree& tree, absl::string_view text) {
  std::vector<std::pair<size_t, int32_t>> found;
  tree.ForPrefixes(text, [&](size_t length, int32_t value) { found.emplace_back(length, value); });
  return found;
}

TEST(PrefixTree, FindsWhatATextBeginsWithTheShortestFirst) {
  const PrefixTree tree = PrefixTree::Build(
      {{"ab", 5}, {"a", 0}, {"abcd", 7}, {std::string("a\0b", 3), 9}, {"\xff\xfe", 3}});
  EXPECT_THAT(Found(tree, "abcde"), ElementsAre(Pair(1, 0), Pair(2, 5), Pair(4, 7)));
  EXPECT_THAT(Found(tree, "abc"), ElementsAre(Pair(1, 0), Pair(2, 5)));
  EXPECT_THAT(Found(tree, absl::string_view("a\0bc", 4)), ElementsAre(Pair(1, 0), Pair(3, 9)));
  EXPECT_THAT(Found(tree, "\xff\xfe"), ElementsAre(Pair(2, 3)));
  EXPECT_THAT(Found(tree, "b"), ElementsAre());
  EXPECT_THAT(Found(tree, ""), ElementsAre());
  int32_t value = 0;
  EXPECT_EQ(tree.Longest("abcx", &value), 2);
  EXPECT_EQ(value, 5);
  EXPECT_TRUE(tree.Begins('a'));
  EXPECT_FALSE(tree.Begins('b'));
}

TEST(PrefixTree, MayBeEmpty) {
  const PrefixTree tree = PrefixTree::Build({});
  int32_t value = 0;
  EXPECT_TRUE(tree.empty());
  EXPECT_FALSE(tree.Begins('a'));
  EXPECT_EQ(tree.Longest("a", &value), 0);
}

}  // namespace
}  // namespace millrace
