#include "engine/device/cpu/cpu_device.h"

#include <vector>

#include "gtest/gtest.h"

namespace millrace {
namespace {

class CpuDeviceTest : public ::testing::TestWithParam<CpuDeviceMode> {
 protected:
  std::unique_ptr<Device> device_ = *CreateCpuDevice(8192, GetParam());
};
INSTANTIATE_TEST_SUITE_P(Modes, CpuDeviceTest,
                         ::testing::Values(CpuDeviceMode::kUnified, CpuDeviceMode::kDiscrete));

TEST_P(CpuDeviceTest, HasMemoryOfTheBudgetsSize) {
  EXPECT_EQ(device_->memory_bytes(), 8192u);
  EXPECT_NE(device_->memory(), nullptr);
  EXPECT_EQ(device_->unified(), GetParam() == CpuDeviceMode::kUnified);
}

TEST_P(CpuDeviceTest, CopiesThereAndBackInOrder) {
  std::unique_ptr<Stream> stream = device_->CreateStream("upload");
  const std::vector<int> source = {1, 2, 3};
  std::vector<int> back(3);
  device_->CopyToDevice(*stream, device_->memory(), source.data(), 12);
  device_->CopyToHost(*stream, back.data(), device_->memory(), 12);
  ASSERT_TRUE(stream->Synchronize().ok());
  EXPECT_EQ(back, source);
}

TEST_P(CpuDeviceTest, AnEventOrdersStreams) {
  std::unique_ptr<Stream> first = device_->CreateStream("first");
  std::unique_ptr<Stream> second = device_->CreateStream("second");
  std::unique_ptr<Event> event = device_->CreateEvent();
  EXPECT_TRUE(event->Synchronize().ok());
  int value = 0, seen = 0;
  first->RunOnHost([&] {
    value = 1;
    return absl::OkStatus();
  });
  first->Record(*event);
  second->Wait(*event);
  second->RunOnHost([&] {
    seen = value;
    return absl::OkStatus();
  });
  ASSERT_TRUE(second->Synchronize().ok());
  EXPECT_EQ(seen, 1);
}

TEST_P(CpuDeviceTest, AfterAnErrorAStreamSkipsItsWorkAndSaysSoEachTime) {
  std::unique_ptr<Stream> stream = device_->CreateStream("compute");
  bool ran = false;
  stream->RunOnHost([] { return absl::InternalError("broken"); });
  stream->RunOnHost([&] {
    ran = true;
    return absl::OkStatus();
  });
  EXPECT_EQ(stream->Synchronize().message(), "broken");
  EXPECT_EQ(stream->Synchronize().message(), "broken");
  EXPECT_FALSE(ran);
}

TEST(CreateCpuDeviceTest, RefusesMoreMemoryThanThereIs) {
  EXPECT_EQ(CreateCpuDevice(size_t{1} << 60).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace millrace
