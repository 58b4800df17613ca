#include "engine/schedule/profile.h"

#include "gtest/gtest.h"

namespace millrace {
namespace {

TEST(ProfileTest, EveryShippedProfileHasItsFiguresAndSaysWhereTheyComeFrom) {
  for (const std::string& name : DeviceProfileNames()) {
    for (DType compute : {DType::kBF16, DType::kF32}) {
      const absl::StatusOr<DeviceProfile> profile = FindDeviceProfile(name, compute);
      ASSERT_TRUE(profile.ok()) << profile.status();
      EXPECT_FALSE(profile->cpu);
      EXPECT_GT(profile->memory_bytes, int64_t{9} << 30) << name;
      EXPECT_GT(profile->host.memory_bytes, int64_t{32} << 30);
      EXPECT_GT(profile->host.memory_bandwidth, 0);
      EXPECT_GT(profile->link.both_ways, profile->link.to_device);
      for (double bandwidth : profile->pass_bandwidth) EXPECT_GT(bandwidth, 3e11);
      EXPECT_GT(profile->softcap_rate, 3e11);
      EXPECT_GE(profile->sources.size(), 7);
      for (const DeviceProfile::Source& source : profile->sources) {
        EXPECT_GT(source.sentence.size(), 20) << source.figure;
      }
    }
  }
}

TEST(ProfileTest, LargeProductsReachWhatWasMeasuredAndSmallOnesLess) {
  const DeviceProfile h200 = *FindDeviceProfile("h200", DType::kBF16);
  const RateGrid& rate = h200.product(ProductKind::kForward);
  EXPECT_NEAR(rate.At({8192, 8192, 8192}), 780e12, 12e12);
  EXPECT_LT(rate.At({128, 896, 896}), 400e12);
  EXPECT_GT(rate.At({4096, 3584, 4608}), 650e12);
}

TEST(ProfileTest, AnUnknownNameIsToldWithThoseThereAre) {
  const absl::Status status = FindDeviceProfile("rtx-9999", DType::kBF16).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("rtx-9999"), std::string::npos) << status;
  EXPECT_NE(status.message().find("rtx-3080-10gb"), std::string::npos) << status;
  EXPECT_NE(status.message().find("gh200"), std::string::npos) << status;
}

TEST(RateGridTest, GivesItsPointsAndGoesBetweenThemEvenlyOnALogarithmicScale) {
  const RateGrid grid({{10, 1000}, {1, 4}}, {1, 2, 100, 200});
  EXPECT_NEAR(grid.At({10, 1}), 1, 1e-12);
  EXPECT_NEAR(grid.At({1000, 4}), 200, 1e-9);
  EXPECT_NEAR(grid.At({100, 1}), 10, 1e-9);
  EXPECT_NEAR(grid.At({100, 2}), 10 * std::sqrt(2.0), 1e-9);
}

TEST(RateGridTest, BeyondTheGridTheEdgeHolds) {
  const RateGrid grid({{10, 1000}}, {1, 100});
  EXPECT_NEAR(grid.At({1}), 1, 1e-12);
  EXPECT_NEAR(grid.At({1e6}), 100, 1e-9);
  EXPECT_DOUBLE_EQ(RateGrid(7.0).At({}), 7.0);
}

}  // namespace
}  // namespace millrace
