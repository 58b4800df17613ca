#include "engine/base/float16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>

namespace millrace {
namespace {

// IEEE 754-2008, 3.4: sign, five bits of exponent, ten of fraction.
double ValueOf(uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 10 & 0x1f),
            fraction = static_cast<int>(bits & 0x3ff);
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

TEST(Float16, EveryValueIsAFloatAndBack) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const Float16 half{static_cast<uint16_t>(bits)};
    const float value = half.ToFloat();
    EXPECT_EQ(std::signbit(value), (bits & 0x8000) != 0);
    if ((bits & 0x7c00) != 0x7c00) {
      EXPECT_EQ(value, ValueOf(bits)) << bits;
    } else if ((bits & 0x3ff) == 0) {
      EXPECT_TRUE(std::isinf(value));
    } else {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_TRUE(std::isnan(Float16::FromFloat(value).ToFloat()));
      continue;
    }
    EXPECT_EQ(Float16::FromFloat(value).bits, bits);
  }
}

}  // namespace
}  // namespace millrace
