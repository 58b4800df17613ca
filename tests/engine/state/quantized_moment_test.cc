#include "engine/state/quantized_moment.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace millrace {
namespace {

constexpr uint8_t kExponents[] = {37, 100, 127, 200, 254};

class QuantizedMomentTest : public testing::TestWithParam<MomentCode> {};

TEST_P(QuantizedMomentTest, ValuesRiseFromZeroToAlmostThePowerOfTwo) {
  const MomentCode code = GetParam();
  for (uint8_t exponent : kExponents) {
    float last = -1;
    for (int value = 0; value <= code.largest; ++value) {
      const float decoded = DecodeMoment(code, static_cast<uint8_t>(value), exponent);
      ASSERT_GT(decoded, last);
      last = decoded;
    }
    EXPECT_EQ(DecodeMoment(code, 0, exponent), 0.0f);
    EXPECT_NEAR(last, std::ldexp(0.9375, exponent - 127), std::ldexp(1e-4, exponent - 127));
    if (code.has_sign) {
      EXPECT_EQ(DecodeMoment(code, 0xff, exponent), -last);
    }
  }
}

TEST_P(QuantizedMomentTest, WhatWasDecodedIsEncodedToTheSameCodeWhateverTheDither) {
  const MomentCode code = GetParam();
  for (uint8_t exponent : kExponents) {
    for (int value = 0; value < 256; ++value) {
      const float decoded = DecodeMoment(code, static_cast<uint8_t>(value), exponent);
      for (uint16_t dither : {0, 1, 32768, 65535}) {
        ASSERT_EQ(EncodeMoment(code, decoded, exponent, dither), value) << decoded;
      }
    }
  }
}

TEST_P(QuantizedMomentTest, RoundingIsWithoutBiasAndBetweenNeighbours) {
  const MomentCode code = GetParam();
  for (float value : {0.9f, 0.5f, 0.3f, 0.0123f, 1.3e-3f, 3.1e-5f}) {
    const uint8_t exponent = 127;
    const uint8_t below = EncodeMoment(code, value, exponent, 0);
    double sum = 0;
    for (int dither = 0; dither < 65536; ++dither) {
      const uint8_t encoded = EncodeMoment(code, value, exponent, static_cast<uint16_t>(dither));
      ASSERT_TRUE(encoded == below || encoded == below + 1);
      sum += DecodeMoment(code, encoded, exponent);
    }
    EXPECT_NEAR(sum / 65536, value, 1e-5 * value);
  }
}

TEST_P(QuantizedMomentTest, AnErrorIsLessThanAStep) {
  const MomentCode code = GetParam();
  const double least = DecodeMoment(code, 1, 127);
  for (double value = 1e-9; value < 0.9; value *= 1.37) {
    for (uint16_t dither : {0, 20000, 65535}) {
      const float decoded =
          DecodeMoment(code, EncodeMoment(code, static_cast<float>(value), 127, dither), 127);
      EXPECT_LE(std::fabs(decoded - value), value / 8 + least);
    }
  }
}

TEST_P(QuantizedMomentTest, BeyondTheLargestTheLargestIsTaken) {
  const MomentCode code = GetParam();
  for (float value : {1.0f, 1e30f, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(EncodeMoment(code, value, 127, 65535), code.largest);
  }
}

INSTANTIATE_TEST_SUITE_P(Codes, QuantizedMomentTest,
                         testing::Values(kFirstMomentCode, kSecondMomentCode),
                         [](const auto& info) {
                           return std::string(info.param.has_sign ? "First" : "Second");
                         });

TEST(SecondMomentTest, WhatIsNotZeroNeverBecomesZero) {
  for (float value : {1e-12f, 1e-20f, 1e-38f, std::numeric_limits<float>::denorm_min()}) {
    EXPECT_EQ(EncodeMoment(kSecondMomentCode, value, 127, 0), 1);
  }
  EXPECT_EQ(EncodeMoment(kSecondMomentCode, 0.0f, 127, 65535), 0);
}

TEST(FirstMomentTest, SignsAreKept) {
  const uint8_t positive = EncodeMoment(kFirstMomentCode, 0.3f, 127, 100);
  EXPECT_EQ(EncodeMoment(kFirstMomentCode, -0.3f, 127, 100), positive | 0x80);
}

TEST(MomentExponentTest, ItsPowerOfTwoHoldsTheLargestMagnitude) {
  for (float largest : {1e-25f, 1e-3f, 0.93f, 0.94f, 1.0f, 1.99f, 1e30f}) {
    const double power = std::ldexp(1.0, MomentExponent(largest) - 127);
    EXPECT_LE(largest, 0.93751 * power);
    EXPECT_GT(largest, 0.46 * power);
  }
}

TEST(MomentExponentTest, OfNothingIsZeroAndEverythingElseIsInRange) {
  EXPECT_EQ(MomentExponent(0.0f), 0);
  EXPECT_EQ(DecodeMoment(kFirstMomentCode, 0x7f, 0), 0.0f);
  EXPECT_EQ(MomentExponent(1e-38f), 37);
  EXPECT_EQ(MomentExponent(std::numeric_limits<float>::max()), 254);
  EXPECT_EQ(MomentExponent(std::numeric_limits<float>::infinity()), 254);
}

}  // namespace
}  // namespace millrace
