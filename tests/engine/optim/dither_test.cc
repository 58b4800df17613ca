#include "engine/optim/dither.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "engine/base/dtype.h"

namespace millrace {
namespace {

TEST(WeightDitherTest, IsUniformOverElementsAndOverSteps) {
  constexpr int kCount = 100'000;
  double over_elements = 0, over_steps = 0, product = 0;
  for (int i = 1; i <= kCount; ++i) {
    const double here = WeightDither({.seed = 7, .step = 3}, static_cast<uint64_t>(i)) / 65536.0;
    const double next =
        WeightDither({.seed = 7, .step = 3}, static_cast<uint64_t>(i + 1)) / 65536.0;
    over_elements += here;
    over_steps += WeightDither({.seed = 7, .step = i}, 12345) / 65536.0;
    product += (here - 0.5) * (next - 0.5);
  }
  EXPECT_NEAR(over_elements / kCount, 0.5, 0.005);
  EXPECT_NEAR(over_steps / kCount, 0.5, 0.005);
  EXPECT_NEAR(product / kCount, 0, 0.001);
}

TEST(WeightDitherTest, DependsOnSeedStepAndElement) {
  std::set<uint64_t> seen;
  for (uint64_t seed : {uint64_t{1}, uint64_t{2}, uint64_t{1} << 40}) {
    for (int64_t step : {1, 2}) {
      uint64_t bits = 0;
      for (uint64_t element : {uint64_t{0}, uint64_t{1}, uint64_t{16}, uint64_t{1} << 36}) {
        bits = bits << 16 | WeightDither({seed, step}, element);
      }
      seen.insert(bits);
    }
  }
  EXPECT_EQ(seen.size(), 6u);
}

TEST(RoundStochasticallyTest, IsWithoutBiasAndBetweenNeighbours) {
  for (float value : {1.001f, -0.30007f, 3e-5f, -1e-20f}) {
    double sum = 0;
    for (int dither = 0; dither < 65536; ++dither) {
      const BFloat16 rounded{RoundStochastically(value, static_cast<uint16_t>(dither))};
      ASSERT_LE(std::fabs(rounded.ToFloat() - value), std::fabs(value) / 128);
      sum += rounded.ToFloat();
    }
    EXPECT_NEAR(sum / 65536, value, 1e-6 * std::fabs(value));
  }
}

TEST(RoundStochasticallyTest, LeavesWhatBf16HoldsAlone) {
  for (float value : {0.0f, 1.0f, -0.15625f}) {
    EXPECT_EQ(BFloat16{RoundStochastically(value, 65535)}.ToFloat(), value);
  }
}

// Of a sequence that fills [0, 1) evenly, about `share` · n of any n in a row are below `share`.
TEST(MomentDitherTest, FillsTheUnitIntervalEvenlyOverSteps) {
  for (uint64_t element : {uint64_t{0}, uint64_t{77}, uint64_t{5} << 33}) {
    for (int shift : {16, 0}) {
      for (double share : {0.01, 0.3, 0.8}) {
        int below = 0;
        for (int64_t step = 1; step <= 2000; ++step) {
          below +=
              (MomentDither({.seed = 3, .step = step}, element) >> shift & 0xffff) < share * 65536;
          ASSERT_LT(std::fabs(below - share * static_cast<double>(step)), 4);
        }
      }
    }
  }
}

TEST(MomentDitherTest, IsUniformOverElements) {
  constexpr int kCount = 100'000;
  double first = 0, second = 0, product = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    const uint32_t dither = MomentDither({.seed = 3, .step = 5}, i);
    first += (dither >> 16) / 65536.0;
    second += (dither & 0xffff) / 65536.0;
    product += ((dither >> 16) / 65536.0 - 0.5) * ((dither & 0xffff) / 65536.0 - 0.5);
  }
  EXPECT_NEAR(first / kCount, 0.5, 0.005);
  EXPECT_NEAR(second / kCount, 0.5, 0.005);
  EXPECT_NEAR(product / kCount, 0, 0.001);
}

}  // namespace
}  // namespace millrace
