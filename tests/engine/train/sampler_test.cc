#include "engine/train/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

namespace millrace {
namespace {

TEST(DrawTokenTest, GreedyTakesTheLargestAndTheFirstOfEquals) {
  const std::vector<float> logits = {0.5f, 2.0f, 2.0f, -1.0f};
  EXPECT_EQ(DrawToken(logits, {.temperature = 0, .top_k = 0}, 0.99), 1);
}

TEST(DrawTokenTest, FrequenciesAreTheSoftmaxOfLogitsOverTemperature) {
  const std::vector<float> logits = {1.0f, 0.0f, -1.0f};
  const double temperature = 0.5;
  std::map<int32_t, int> counts;
  const int draws = 20000;
  for (int i = 0; i < draws; ++i) {
    ++counts[DrawToken(logits, {.temperature = temperature, .top_k = 0}, (i + 0.5) / draws)];
  }
  double total = 0;
  for (float logit : logits) total += std::exp(logit / temperature);
  for (int32_t token = 0; token < 3; ++token) {
    const double expected = std::exp(logits[token] / temperature) / total;
    EXPECT_NEAR(counts[token] / static_cast<double>(draws), expected, 2e-4);
  }
}

TEST(DrawTokenTest, NeverDrawsOutsideTheTopK) {
  const std::vector<float> logits = {0.0f, 3.0f, 2.0f, 1.0f};
  for (int i = 0; i < 1000; ++i) {
    const int32_t token = DrawToken(logits, {.temperature = 5.0, .top_k = 2}, i / 1000.0);
    EXPECT_TRUE(token == 1 || token == 2);
  }
}

TEST(DrawTokenTest, ATopKBeyondTheVocabularyIsAll) {
  const std::vector<float> logits = {0.0f, 0.0f};
  EXPECT_EQ(DrawToken(logits, {.temperature = 1.0, .top_k = 100}, 0.9), 1);
}

TEST(GenerateTest, LooksAtTheLastTokensOfTheContextAndStopsAtTheEndOfADocument) {
  std::vector<std::vector<int32_t>> seen;
  // The next token is the last one plus one; 4 ends the document.
  const auto logits = [&](absl::Span<const int32_t> tokens, absl::Span<float> out) {
    seen.emplace_back(tokens.begin(), tokens.end());
    for (float& logit : out) logit = 0;
    out[tokens.back() + 1] = 10;
    return absl::OkStatus();
  };
  const auto text =
      Generate({0, 1}, {.max_tokens = 10, .context = 2, .vocab_size = 6, .end_of_document = 4},
               {.temperature = 0}, CounterRandom(1, 1), logits);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*text, (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(seen, (std::vector<std::vector<int32_t>>{{0, 1}, {1, 2}, {2, 3}}));
}

TEST(GenerateTest, IsAFunctionOfTheSeed) {
  const auto logits = [](absl::Span<const int32_t>, absl::Span<float> out) {
    for (float& logit : out) logit = 0;
    return absl::OkStatus();
  };
  const GenerationLimits limits = {
      .max_tokens = 50, .context = 8, .vocab_size = 100, .end_of_document = -1};
  const auto generate = [&](uint64_t seed) {
    return *Generate({0}, limits, {.temperature = 1, .top_k = 0}, CounterRandom(seed, 1), logits);
  };
  EXPECT_EQ(generate(3), generate(3));
  EXPECT_NE(generate(3), generate(4));
}

TEST(ToValidUtf8Test, KeepsTextAndReplacesWhatIsNone) {
  EXPECT_EQ(ToValidUtf8("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"),
            "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  EXPECT_EQ(ToValidUtf8("\xff"), "\xef\xbf\xbd");
  EXPECT_EQ(ToValidUtf8("a\xe2\x82"), "a\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(ToValidUtf8("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
}

}  // namespace
}  // namespace millrace
