#include "engine/schedule/calibration.h"

#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace millrace {
namespace {

void Write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

// Measures once for all tests.
class CalibrationTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ThreadPool pool(2);
    const std::string path = Path();
    std::remove(path.c_str());
    first_ = new Calibration(CalibrateCpu(path, DType::kF32, pool));
  }
  static std::string Path() { return ::testing::TempDir() + "/cpu-profile.json"; }
  static std::string Text() { return CalibrationToJson(first_->profile, DType::kF32, 2); }

  static Calibration* first_;
};
Calibration* CalibrationTest::first_ = nullptr;

TEST_F(CalibrationTest, MeasuresEveryRateOnceAndKeepsThem) {
  EXPECT_TRUE(first_->measured);
  EXPECT_TRUE(first_->kept.ok()) << first_->kept;
  const DeviceProfile& profile = first_->profile;
  EXPECT_TRUE(profile.cpu);
  for (double rate : profile.product(ProductKind::kForward).values()) EXPECT_GT(rate, 1e8);
  for (double bandwidth : profile.pass_bandwidth) EXPECT_GT(bandwidth, 1e7);
  EXPECT_GT(profile.softcap_rate, 1e7);
  EXPECT_GT(profile.host.memory_bandwidth, 1e8);
  EXPECT_GT(profile.host.update.quantized_core_seconds, 0);
  EXPECT_GT(profile.link.to_device, 0);

  ThreadPool pool(2);
  const Calibration second = CalibrateCpu(Path(), DType::kF32, pool);
  EXPECT_FALSE(second.measured);
  EXPECT_EQ(CalibrationToJson(second.profile, DType::kF32, 2), Text());
}

TEST_F(CalibrationTest, AnotherSettingVersionOrProcessorIsNotForUs) {
  EXPECT_TRUE(CalibrationFromJson(Text(), DType::kF32, 2).ok());
  EXPECT_FALSE(CalibrationFromJson(Text(), DType::kBF16, 2).ok());
  EXPECT_FALSE(CalibrationFromJson(Text(), DType::kF32, 3).ok());
  EXPECT_FALSE(
      CalibrationFromJson(Replaced(Text(), "\"version\": ", "\"version\": 9"), DType::kF32, 2)
          .ok());
  EXPECT_FALSE(CalibrationFromJson(Replaced(Text(), "\"processor\": \"", "\"processor\": \"x"),
                                   DType::kF32, 2)
                   .ok());
}

TEST_F(CalibrationTest, DamagedContentIsRefused) {
  const std::string text = Text();
  for (const std::string& damaged :
       {std::string(), std::string("{}"), text.substr(0, text.size() / 2),
        Replaced(text, "\"rates\"", "\"rated\""), Replaced(text, "\"sizes\"", "\"size\""),
        Replaced(text, "\"copy_bandwidth\": ", "\"copy_bandwidth\": -")}) {
    const absl::Status status = CalibrationFromJson(damaged, DType::kF32, 2).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  }
}

TEST_F(CalibrationTest, ADamagedFileIsMeasuredAgainAndReplaced) {
  const std::string path = ::testing::TempDir() + "/damaged.json";
  Write(path, "{\"version\": 1, ");
  ThreadPool pool(2);
  EXPECT_TRUE(CalibrateCpu(path, DType::kF32, pool).measured);
  EXPECT_FALSE(CalibrateCpu(path, DType::kF32, pool).measured);
}

TEST_F(CalibrationTest, ALinkIsAsFastAsToldButWithoutOneCopiesAreTheLimit) {
  const DeviceProfile slow = WithLink(first_->profile, 1e8, 1e-5);
  EXPECT_EQ(slow.link.to_device, 1e8);
  EXPECT_EQ(slow.link.latency_seconds, 1e-5);
  const DeviceProfile free = WithLink(first_->profile, 0, 0);
  EXPECT_EQ(free.link.to_host, first_->profile.copy_bandwidth);
}

}  // namespace
}  // namespace millrace
