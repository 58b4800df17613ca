#include "engine/ops/rotary_table.h"

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using nlohmann::json;

struct Case {
  std::string name;
  RotaryEmbedding rotary;
  int64_t width, sequence_length;
  std::vector<double> frequencies;
};

Case CaseOf(const json& item) {
  const json& config = item["config"];
  const json& parameters = config["rope_parameters"];
  const std::string type = parameters["rope_type"];
  Case c{.name = item["name"], .frequencies = item["inverse_frequencies"]};
  const double part = parameters.value("partial_rotary_factor", 1.0);
  c.width = static_cast<int64_t>(config["head_dim"].get<double>() * part);
  const json& length = item["sequence_length"];
  c.sequence_length = length.is_null() ? 1 : length.get<int64_t>();
  RotaryEmbedding& rotary = c.rotary;
  rotary.scaling = type == "linear"    ? RotaryScaling::kLinear
                   : type == "dynamic" ? RotaryScaling::kDynamic
                   : type == "yarn"    ? RotaryScaling::kYarn
                   : type == "llama3"  ? RotaryScaling::kLlama3
                                       : RotaryScaling::kLongRope;
  rotary.theta = parameters["rope_theta"];
  rotary.factor = parameters.value("factor", 1.0);
  rotary.original_positions =
      parameters.value("original_max_position_embeddings", config["max_position_embeddings"]);
  rotary.beta_fast = parameters.value("beta_fast", rotary.beta_fast);
  rotary.beta_slow = parameters.value("beta_slow", rotary.beta_slow);
  rotary.truncate = parameters.value("truncate", true);
  rotary.low_frequency_factor = parameters.value("low_freq_factor", 0.0);
  rotary.high_frequency_factor = parameters.value("high_freq_factor", 0.0);
  rotary.short_factors = parameters.value("short_factor", std::vector<double>());
  rotary.long_factors = parameters.value("long_factor", std::vector<double>());
  rotary.attention_factor = item["attention_factor"];
  return c;
}

std::vector<Case> GoldenCases() {
  std::ifstream file("tests/golden/rope/cases.json");
  std::vector<Case> cases;
  for (const json& item : json::parse(file)) cases.push_back(CaseOf(item));
  return cases;
}

TEST(RotaryFrequenciesTest, AreThoseOfTransformers) {
  for (const Case& c : GoldenCases()) {
    SCOPED_TRACE(c.name);
    const std::vector<double> got = RotaryFrequencies(c.rotary, c.width, c.sequence_length);
    ASSERT_EQ(got.size(), c.frequencies.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(got[i], c.frequencies[i], 1e-6 * c.frequencies[i]) << "pair " << i;
    }
  }
}

TEST(RotaryFrequenciesTest, AreUnscaledByDefault) {
  const std::vector<double> got = RotaryFrequencies({.theta = 500}, 6, 1);
  ASSERT_EQ(got.size(), 3);
  for (int i = 0; i < 3; ++i) EXPECT_DOUBLE_EQ(got[i], std::pow(500, -i / 3.0));
}

TEST(FillRotaryTableTest, HoldsCosinesAndSinesTimesTheAttentionFactor) {
  constexpr int64_t kPositions = 5;
  for (const Case& c : GoldenCases()) {
    SCOPED_TRACE(c.name);
    const std::vector<double> frequencies = RotaryFrequencies(c.rotary, c.width, c.sequence_length);
    std::vector<float> table(kPositions * c.width);
    FillRotaryTable(c.rotary, c.width, c.sequence_length, kPositions, table.data());
    for (int64_t position = 0; position < kPositions; ++position) {
      for (int64_t i = 0; i < c.width / 2; ++i) {
        const double angle = static_cast<double>(position) * frequencies[i];
        const float* pair = &table[position * c.width + 2 * i];
        EXPECT_FLOAT_EQ(pair[0], c.rotary.attention_factor * std::cos(angle));
        EXPECT_FLOAT_EQ(pair[1], c.rotary.attention_factor * std::sin(angle));
      }
    }
  }
}

}  // namespace
}  // namespace millrace
