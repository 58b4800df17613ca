#include "engine/state/split_master.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace millrace {
namespace {

uint32_t Bits(float value) { return std::bit_cast<uint32_t>(value); }

TEST(SplitMasterTest, JoinGivesBackEveryExponentAndEdgeOfTheMantissaBitForBit) {
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (uint32_t lower : {0x0000u, 0x0001u, 0x1234u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const float value = std::bit_cast<float>((upper << 16) | lower);
      if (!std::isfinite(value)) continue;
      ASSERT_EQ(Bits(Join(Split(value))), Bits(value)) << value;
    }
  }
}

TEST(SplitMasterTest, HighHalfIsANearestBFloat16) {
  uint32_t state = 1;
  for (int i = 0; i < 1000000; ++i) {
    state = state * 1664525u + 1013904223u;
    const float value = std::bit_cast<float>(state);
    if (!std::isfinite(value) || std::fabs(value) > 3e38f) continue;
    const double chosen = std::fabs(static_cast<double>(Split(value).high.ToFloat()) - value);
    const double nearest =
        std::fabs(static_cast<double>(BFloat16::FromFloat(value).ToFloat()) - value);
    ASSERT_EQ(chosen, nearest) << value;
  }
}

TEST(SplitMasterTest, TiesGoAwayFromZeroOnBothSides) {
  const float tie = std::bit_cast<float>(0x3f808000u);
  EXPECT_EQ(Split(tie).high.bits, 0x3f81);
  EXPECT_EQ(Split(-tie).high.bits, 0xbf81);
}

TEST(SplitMasterTest, ValuesNearOverflowStreamAsInfinityButComeBackFinite) {
  const float largest = std::numeric_limits<float>::max();
  for (float value : {largest, -largest}) {
    EXPECT_TRUE(std::isinf(Split(value).high.ToFloat()));
    EXPECT_EQ(Join(Split(value)), value);
  }
}

TEST(SplitMasterTest, InfinityAndDefaultNaNStayWhatTheyAre) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Split(-infinity).high.ToFloat(), -infinity);
  EXPECT_EQ(Join(Split(infinity)), infinity);
  EXPECT_TRUE(std::isnan(Split(std::numeric_limits<float>::quiet_NaN()).high.ToFloat()));
}

}  // namespace
}  // namespace millrace
