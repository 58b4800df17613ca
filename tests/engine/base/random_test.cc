#include "engine/base/random.h"

#include <cmath>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;

// Known answers of Random123 (Salmon et al.), file kat_vectors, philox4x32 10.
TEST(PhiloxTest, GivesThePublishedWords) {
  EXPECT_THAT(Philox4x32(0, 0, 0), ElementsAre(0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u));
  EXPECT_THAT(Philox4x32(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}),
              ElementsAre(0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu));
  EXPECT_THAT(Philox4x32(0x299f31d0a4093822u, 0x0370734413198a2eu, 0x85a308d3243f6a88u),
              ElementsAre(0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u));
}

TEST(CounterRandomTest, IsAFunctionOfSeedStreamAndIndex) {
  EXPECT_EQ(CounterRandom(1, 2).Uint64(3), CounterRandom(1, 2).Uint64(3));
  std::set<uint64_t> values;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    for (uint64_t stream = 0; stream < 4; ++stream) {
      for (uint64_t index = 0; index < 100; ++index) {
        values.insert(CounterRandom(seed, stream).Uint64(index));
      }
    }
  }
  EXPECT_EQ(values.size(), 1600u);
}

TEST(CounterRandomTest, UniformsAndNormalsHaveTheirMoments) {
  const CounterRandom random(5, 0);
  constexpr int kCount = 200000;
  double uniform = 0, normal = 0, square = 0, fourth = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double u = random.Uniform(i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    uniform += u;
    const double x = random.Normal(i);
    normal += x;
    square += x * x;
    fourth += x * x * x * x;
  }
  EXPECT_NEAR(uniform / kCount, 0.5, 0.004);
  EXPECT_NEAR(normal / kCount, 0.0, 0.012);
  EXPECT_NEAR(square / kCount, 1.0, 0.02);
  EXPECT_NEAR(fourth / kCount, 3.0, 0.15);
}

TEST(CounterRandomTest, BelowStaysBelowAndReachesAll) {
  const CounterRandom random(9, 1);
  std::set<uint64_t> values;
  for (uint64_t i = 0; i < 1000; ++i) values.insert(random.Below(7, i));
  EXPECT_EQ(values.size(), 7u);
  EXPECT_LT(*values.rbegin(), 7u);
}

}  // namespace
}  // namespace millrace
