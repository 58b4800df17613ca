#include "engine/train/text_stream.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "engine/base/file.h"
#include "engine/data/tokenizer_file.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

// Token n is the n-th piece.
class PieceTokenizer : public Tokenizer {
 public:
  explicit PieceTokenizer(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}
  std::string name() const override { return "pieces"; }
  int64_t vocab_size() const override { return static_cast<int64_t>(pieces_.size()); }
  int32_t end_of_document() const override { return -1; }
  void Encode(absl::string_view, std::vector<int32_t>*) const override {}
  std::string Decode(absl::Span<const int32_t> tokens) const override {
    std::string text;
    for (int32_t token : tokens) text += pieces_[static_cast<size_t>(token)];
    return text;
  }

 private:
  std::vector<std::string> pieces_;
};

// What each token of `pieces` shows, the rest last.
std::vector<std::string> Shown(const std::vector<std::string>& pieces,
                               const std::vector<std::string>& stop) {
  const PieceTokenizer tokenizer(pieces);
  TextStream stream(tokenizer, {}, stop);
  std::vector<std::string> shown;
  for (size_t i = 0; i < pieces.size() && !stream.stopped(); ++i) {
    shown.push_back(stream.Add(static_cast<int32_t>(i)));
  }
  shown.push_back(stream.Finish());
  return shown;
}

using Texts = std::vector<std::string>;

TEST(TextStreamTest, TextEndsBeforeAStopStringThatCrossesTokens) {
  EXPECT_EQ(Shown({"one E", "N", "D two"}, {"END"}), (Texts{"one ", "", "", ""}));
  EXPECT_EQ(Shown({"a", "b\n", "\nc"}, {"\n\n"}), (Texts{"a", "b", "", ""}));
}

TEST(TextStreamTest, WhatOnlyBeganLikeAStopStringIsShown) {
  EXPECT_EQ(Shown({"E", "N", "E", "ND"}, {"END!"}), (Texts{"", "", "EN", "", "END"}));
  EXPECT_EQ(Shown({"aab", "aab", "c"}, {"aabaac"}), (Texts{"", "aab", "aabc", ""}));
}

TEST(TextStreamTest, TheFirstOfSeveralStopStringsEndsTheText) {
  EXPECT_EQ(Shown({"x", "y.", "!z"}, {"!z", "."}), (Texts{"x", "y", ""}));
  EXPECT_EQ(Shown({"abcd"}, {"cd", "bcd"}), (Texts{"a", ""}));
}

TEST(TextStreamTest, OnlyWholeCharactersAreShown) {
  EXPECT_EQ(Shown({"\xe2", "\x82", "\xac!", "\xf0\x9f", "\x98\x80"}, {}),
            (Texts{"", "", "\xe2\x82\xac!", "", "\xf0\x9f\x98\x80", ""}));
  // One that stays cut, and bytes that are none.
  EXPECT_EQ(Shown({"a\xe2\x82", "b", "\xff", "\xe2"}, {}),
            (Texts{"a",
                   "\xef\xbf\xbd"
                   "b",
                   "\xef\xbf\xbd", "", "\xef\xbf\xbd"}));
}

// Of the tokenizers' golden cases, cut anywhere into a prompt and what is generated.
class GoldenTextStreamTest : public testing::TestWithParam<const char*> {};

TEST_P(GoldenTextStreamTest, PromptAndStreamAreTheDecodedText) {
  const std::string folder = std::string("tests/golden/tokenizer_") + GetParam();
  const auto tokenizer = LoadTokenizer(folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  int compared = 0;
  for (const auto& expected : nlohmann::json::parse(*ReadFile(folder + "/cases.json"))) {
    if (expected.at("decoded").is_null()) continue;
    const std::string decoded = expected.at("decoded");
    const std::vector<int32_t> ids = expected.at("ids");
    for (size_t cut = 0; cut <= ids.size(); ++cut) {
      const auto prompt = absl::MakeConstSpan(ids).first(cut);
      const std::string before = (*tokenizer)->Decode(prompt);
      // Cut inside a character, or read differently without what follows.
      const bool inside = before.size() < decoded.size() && (decoded[before.size()] & 0xc0) == 0x80;
      if (!absl::StartsWith(decoded, before) || inside) continue;
      TextStream stream(**tokenizer, prompt, {});
      std::string text = before;
      for (int32_t id : absl::MakeConstSpan(ids).subspan(cut)) {
        text += stream.Add(id);
        ASSERT_TRUE(absl::StartsWith(decoded, text)) << decoded << "\n" << text;
      }
      text += stream.Finish();
      ASSERT_EQ(text, decoded) << "prompt of " << cut << " tokens";
      ++compared;
    }
  }
  EXPECT_GT(compared, 100);
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, GoldenTextStreamTest,
                         testing::Values("gpt2", "llama3", "metaspace", "prepend", "accents"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace millrace
