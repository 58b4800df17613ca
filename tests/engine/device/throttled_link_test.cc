// The link's time, by clocks that the test moves.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/synchronization/notification.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/device/cpu/link.h"
#include "engine/device/cpu/link_clock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

constexpr int64_t kMillisecond = 1'000'000;
constexpr size_t kCopyBytes = 1'000'000;  // 1 ms at 1 GB/s
constexpr int64_t kLatency = 7'000;

constexpr int64_t kStart = 5 * kMillisecond;

// Moves when somebody sleeps, to `oversleep_ns` after the time to wake; or not even then, so that
// threads cannot see how far others are.
class ManualClock final : public LinkClock {
 public:
  explicit ManualClock(int64_t oversleep_ns = 0) : oversleep_ns_(oversleep_ns) {}
  int64_t NowNs() override { return now_ns_.load(); }
  void SleepUntilNs(int64_t time_ns) override {
    RaiseTo(latest_ns_, time_ns);
    if (!frozen_) RaiseTo(now_ns_, time_ns + oversleep_ns_);
  }
  void Advance(int64_t duration_ns) { now_ns_.fetch_add(duration_ns); }
  void Freeze() { frozen_ = true; }
  // The latest time that anybody has slept until.
  int64_t latest_ns() const { return latest_ns_.load(); }

 private:
  static void RaiseTo(std::atomic<int64_t>& value, int64_t least) {
    for (int64_t now = value.load(); now < least;) {
      if (value.compare_exchange_weak(now, least)) return;
    }
  }

  const int64_t oversleep_ns_;
  std::atomic<bool> frozen_{false};
  std::atomic<int64_t> now_ns_{kStart}, latest_ns_{kStart};
};

class ThrottledLinkTest : public ::testing::Test {
 protected:
  explicit ThrottledLinkTest(int64_t oversleep_ns = 0) : clock_(oversleep_ns) {}

  void Upload(Stream& stream, int copies, int place = 0) {
    std::byte* const to = device_->memory() + place * kCopyBytes;
    for (int i = 0; i < copies; ++i) {
      device_->CopyToDevice(stream, to, host_.data(), kCopyBytes);
    }
  }
  void Download(Stream& stream, int copies) {
    for (int i = 0; i < copies; ++i) {
      device_->CopyToHost(stream, back_.data(), device_->memory() + 2 * kCopyBytes, kCopyBytes);
    }
  }
  // `stream` does nothing until Release, so that all that is enqueued till then is queued at once.
  void Hold(Stream& stream) {
    stream.RunOnHost([this] {
      gate_.WaitForNotification();
      return absl::OkStatus();
    });
  }
  void Release() { gate_.Notify(); }
  int64_t elapsed() { return clock_.NowNs() - kStart; }

  absl::Notification gate_;
  ManualClock clock_;
  std::unique_ptr<Device> device_ = *CreateCpuDevice({.budget_bytes = 3 * kCopyBytes,
                                                      .mode = CpuDeviceMode::kDiscrete,
                                                      .link_bytes_per_second = 1e9,
                                                      .link_latency = absl::Nanoseconds(kLatency),
                                                      .clock = &clock_});
  std::vector<char> host_ = std::vector<char>(kCopyBytes, 'h'), back_ = host_;
};

TEST_F(ThrottledLinkTest, ACopyTakesItsTimeAndTheLatency) {
  std::unique_ptr<Stream> stream = device_->CreateStream("upload");
  Upload(*stream, 1);
  ASSERT_TRUE(stream->Synchronize().ok());
  EXPECT_EQ(elapsed(), kMillisecond + kLatency);
  EXPECT_EQ(device_->memory()[kCopyBytes - 1], std::byte{'h'});
}

TEST_F(ThrottledLinkTest, CopiesBackToBackPayTheLatencyOnce) {
  std::unique_ptr<Stream> stream = device_->CreateStream("upload");
  Hold(*stream);
  Upload(*stream, 20);
  Release();
  ASSERT_TRUE(stream->Synchronize().ok());
  EXPECT_EQ(elapsed(), 20 * kMillisecond + kLatency);
}

TEST_F(ThrottledLinkTest, TheDirectionsDoNotShare) {
  clock_.Freeze();
  std::unique_ptr<Stream> up = device_->CreateStream("upload");
  std::unique_ptr<Stream> down = device_->CreateStream("download");
  Upload(*up, 10);
  Download(*down, 10);
  ASSERT_TRUE(up->Synchronize().ok());
  ASSERT_TRUE(down->Synchronize().ok());
  EXPECT_EQ(clock_.latest_ns() - kStart, 10 * kMillisecond + kLatency);
}

TEST_F(ThrottledLinkTest, StreamsOfOneDirectionShare) {
  clock_.Freeze();
  std::unique_ptr<Stream> first = device_->CreateStream("first");
  std::unique_ptr<Stream> second = device_->CreateStream("second");
  Upload(*first, 10);
  Upload(*second, 10, /*place=*/1);
  ASSERT_TRUE(first->Synchronize().ok());
  ASSERT_TRUE(second->Synchronize().ok());
  EXPECT_EQ(clock_.latest_ns() - kStart, 20 * kMillisecond + kLatency);
}

TEST_F(ThrottledLinkTest, AnIdleLinkSavesNothingUp) {
  std::unique_ptr<Stream> stream = device_->CreateStream("upload");
  Upload(*stream, 1);
  ASSERT_TRUE(stream->Synchronize().ok());
  clock_.Advance(50 * kMillisecond);
  const int64_t before = elapsed();
  Hold(*stream);
  Upload(*stream, 2);
  Release();
  ASSERT_TRUE(stream->Synchronize().ok());
  EXPECT_EQ(elapsed() - before, 2 * kMillisecond + kLatency);
}

TEST_F(ThrottledLinkTest, ACopyBeginsWhenWhatItWaitsForIsDone) {
  std::unique_ptr<Stream> compute = device_->CreateStream("compute");
  std::unique_ptr<Stream> stream = device_->CreateStream("download");
  std::unique_ptr<Event> event = device_->CreateEvent();
  Hold(*compute);
  compute->RunOnHost([this] {
    clock_.Advance(30 * kMillisecond);
    return absl::OkStatus();
  });
  compute->Record(*event);
  stream->Wait(*event);
  Download(*stream, 2);
  Release();
  ASSERT_TRUE(stream->Synchronize().ok());
  EXPECT_EQ(elapsed(), 32 * kMillisecond + kLatency);
}

TEST_F(ThrottledLinkTest, WorkStartsOnceTheCopyBeforeItHasArrived) {
  std::unique_ptr<Stream> stream = device_->CreateStream("upload");
  Hold(*stream);
  int64_t begun = 0;
  Upload(*stream, 3);
  stream->RunOnHost([&] {
    begun = elapsed();
    return absl::OkStatus();
  });
  Release();
  ASSERT_TRUE(stream->Synchronize().ok());
  EXPECT_EQ(begun, 3 * kMillisecond + kLatency);
}

class LateSleepersTest : public ThrottledLinkTest {
 protected:
  static constexpr int64_t kOversleep = 60'000;
  LateSleepersTest() : ThrottledLinkTest(kOversleep) {}
};

TEST_F(LateSleepersTest, TheAverageRateIsTheLinks) {
  std::unique_ptr<Stream> stream = device_->CreateStream("upload");
  Hold(*stream);
  Upload(*stream, 100);
  Release();
  ASSERT_TRUE(stream->Synchronize().ok());
  EXPECT_EQ(elapsed(), 100 * kMillisecond + kLatency + kOversleep);
}

// As when each copy is traced.
TEST_F(LateSleepersTest, NeitherDoShortPiecesOfWorkBetweenCopiesLowerIt) {
  std::unique_ptr<Stream> stream = device_->CreateStream("upload");
  Hold(*stream);
  for (int i = 0; i < 100; ++i) {
    Upload(*stream, 1);
    stream->RunOnHost([] { return absl::OkStatus(); });
  }
  Release();
  ASSERT_TRUE(stream->Synchronize().ok());
  EXPECT_EQ(elapsed(), 100 * (kMillisecond + kLatency) + kOversleep);
}

TEST(LinkTest, SmallTransfersAddUp) {
  Link link(3e9, 0);
  Link::Transfer last{};
  for (int i = 0; i < 3000; ++i) last = link.Reserve(1, 1000);
  EXPECT_EQ(last.left_ns, 2000);
}

TEST(LinkTest, WithoutABandwidthOnlyTheLatencyCounts) {
  Link link(0, 9);
  EXPECT_EQ(link.Reserve(size_t{1} << 40, 100).left_ns, 100);
  EXPECT_EQ(link.Reserve(size_t{1} << 40, 100).arrived_ns, 109);
}

TEST(RealClockTest, NobodyWakesEarly) {
  LinkClock& clock = LinkClock::Real();
  const int64_t until = clock.NowNs() + 200'000;
  clock.SleepUntilNs(until);
  EXPECT_GE(clock.NowNs(), until);
  clock.SleepUntilNs(until - kMillisecond);
}

}  // namespace
}  // namespace millrace
