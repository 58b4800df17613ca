#include "engine/train/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "engine/base/file.h"
#include "nlohmann/json.hpp"

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

TEST(CandidatesTest, AreThoseOfTransformersWithTheirProbabilities) {
  const auto golden = nlohmann::json::parse(*ReadFile("tests/golden/sampling/cases.json"));
  for (const auto& expected : golden.at("cases")) {
    const auto& options = expected.at("options");
    SCOPED_TRACE(options.dump());
    const SamplingParams params = {.temperature = options.at("temperature"),
                                   .top_k = options.value("top_k", 0),
                                   .top_p = options.value("top_p", 1.0),
                                   .min_p = options.value("min_p", 0.0),
                                   .repetition_penalty = options.value("repetition_penalty", 1.0)};
    std::vector<float> logits = expected.at("logits");
    std::vector<int32_t> text = expected.at("text");
    std::sort(text.begin(), text.end());
    text.erase(std::unique(text.begin(), text.end()), text.end());
    PenalizeRepetition(text, params.repetition_penalty, absl::MakeSpan(logits));

    std::map<int32_t, double> weights;
    double total = 0;
    for (const Candidate& candidate : Candidates(logits, params)) {
      weights[candidate.token] = candidate.weight;
      total += candidate.weight;
    }
    const std::vector<int32_t> kept = expected.at("kept");
    const std::vector<double> probabilities = expected.at("probabilities");
    std::vector<int32_t> tokens;
    for (const auto& [token, weight] : weights) tokens.push_back(token);
    EXPECT_EQ(tokens, kept);
    for (size_t i = 0; i < kept.size(); ++i) {
      EXPECT_NEAR(weights[kept[i]] / total, probabilities[i], 1e-6) << "token " << kept[i];
    }
  }
}

TEST(CandidatesTest, TopPOfManyTokensIsThatOfAllInOrder) {
  // 2000 tokens in no order; the first n in order weigh more than half.
  std::vector<float> logits(2000);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = -static_cast<float>((i * 1237) % logits.size()) / 300;
  }
  const auto candidates = Candidates(logits, {.temperature = 1, .top_k = 0, .top_p = 0.9});
  double all = 0, kept = 0;
  for (float logit : logits) all += std::exp(static_cast<double>(logit));
  for (const Candidate& candidate : candidates) kept += candidate.weight;
  EXPECT_GE(kept, 0.9 * all);
  EXPECT_LT(kept - candidates.back().weight, 0.9 * all);
  EXPECT_GT(candidates.size(), 500u);
}

TEST(CandidatesTest, NumbersThatAreNoneAreNoCandidates) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinite = std::numeric_limits<float>::infinity();
  EXPECT_EQ(DrawToken({{nan, 1.0f, nan, 0.0f}}, {.temperature = 1, .top_k = 1}, 0.5), 1);
  EXPECT_EQ(DrawToken({{nan, nan}}, {.temperature = 0}, 0.5), -1);
  EXPECT_EQ(DrawToken({{1.0f, infinite, 2.0f}}, {.temperature = 1}, 0.5), 1);
  EXPECT_EQ(DrawToken({{1.0f, -infinite}}, {.temperature = 1, .top_k = 0}, 0.999999), 0);
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

TEST(GenerateTest, EndsWhereNoTokenCanBeDrawn) {
  const auto logits = [](absl::Span<const int32_t> tokens, absl::Span<float> out) {
    std::fill(out.begin(), out.end(), tokens.size() < 3 ? 0.0f : std::nanf(""));
    return absl::OkStatus();
  };
  const GenerationLimits limits = {
      .max_tokens = 10, .context = 8, .vocab_size = 4, .end_of_document = 9};
  EXPECT_EQ(Generate({0}, limits, {.temperature = 0}, CounterRandom(1, 1), logits)->size(), 2);
}

}  // namespace
}  // namespace millrace
