#include "engine/device/cpu/cpu_device.h"

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

// What both modes promise.
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

TEST_P(CpuDeviceTest, AStreamRunsItsWorkInOrder) {
  std::unique_ptr<Stream> stream = device_->CreateStream("compute");
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) {
    stream->RunOnHost([&order, i] {
      order.push_back(i);
      return absl::OkStatus();
    });
  }
  ASSERT_TRUE(stream->Synchronize().ok());
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST_P(CpuDeviceTest, AnEventOrdersStreams) {
  std::unique_ptr<Stream> first = device_->CreateStream("first");
  std::unique_ptr<Stream> second = device_->CreateStream("second");
  std::unique_ptr<Event> event = device_->CreateEvent();
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

TEST_P(CpuDeviceTest, AnEventThatWasNeverRecordedHoldsNobodyUp) {
  std::unique_ptr<Stream> stream = device_->CreateStream("compute");
  std::unique_ptr<Event> event = device_->CreateEvent();
  EXPECT_TRUE(event->Synchronize().ok());
  stream->Wait(*event);
  EXPECT_TRUE(stream->Synchronize().ok());
}

TEST_P(CpuDeviceTest, TheHostCanWaitForAnEvent) {
  std::unique_ptr<Stream> stream = device_->CreateStream("compute");
  std::unique_ptr<Event> event = device_->CreateEvent();
  int value = 0;
  stream->RunOnHost([&] {
    value = 1;
    return absl::OkStatus();
  });
  stream->Record(*event);
  ASSERT_TRUE(event->Synchronize().ok());
  EXPECT_EQ(value, 1);
}

TEST_P(CpuDeviceTest, AfterAnErrorAStreamSkipsItsWorkAndSaysSoEachTime) {
  std::unique_ptr<Stream> stream = device_->CreateStream("compute");
  bool ran = false;
  int copied = 0;
  const int one = 1;
  stream->RunOnHost([] { return absl::InternalError("broken"); });
  stream->RunOnHost([&] {
    ran = true;
    return absl::OkStatus();
  });
  device_->CopyToHost(*stream, &copied, &one, sizeof(int));
  EXPECT_EQ(stream->Synchronize().message(), "broken");
  EXPECT_EQ(stream->Synchronize().message(), "broken");
  EXPECT_FALSE(ran);
  EXPECT_EQ(copied, 0);
}

TEST_P(CpuDeviceTest, AnErrorGoesOverToWhoWaitsForWhatWasSkipped) {
  std::unique_ptr<Stream> first = device_->CreateStream("first");
  std::unique_ptr<Stream> second = device_->CreateStream("second");
  std::unique_ptr<Event> before = device_->CreateEvent(), after = device_->CreateEvent();
  bool ran = false;
  first->Record(*before);
  first->RunOnHost([] { return absl::InternalError("broken"); });
  first->Record(*after);
  second->Wait(*before);
  EXPECT_TRUE(second->Synchronize().ok());
  second->Wait(*after);
  second->RunOnHost([&] {
    ran = true;
    return absl::OkStatus();
  });
  EXPECT_EQ(second->Synchronize().message(), "broken");
  EXPECT_FALSE(ran);
  EXPECT_TRUE(before->Synchronize().ok());
  EXPECT_EQ(after->Synchronize().message(), "broken");
}

TEST_P(CpuDeviceTest, AnExceptionIsTheStreamsError) {
  std::unique_ptr<Stream> stream = device_->CreateStream("compute");
  stream->RunOnHost([]() -> absl::Status { throw std::runtime_error("a library's complaint"); });
  const absl::Status status = stream->Synchronize();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_NE(status.message().find("a library's complaint"), absl::string_view::npos);

  std::unique_ptr<Stream> other = device_->CreateStream("compute");
  other->RunOnHost([]() -> absl::Status { throw std::bad_alloc(); });
  EXPECT_EQ(other->Synchronize().code(), absl::StatusCode::kResourceExhausted);
}

TEST(CreateCpuDeviceTest, RefusesMoreMemoryThanThereIs) {
  for (CpuDeviceMode mode : {CpuDeviceMode::kUnified, CpuDeviceMode::kDiscrete}) {
    EXPECT_EQ(CreateCpuDevice(size_t{1} << 60, mode).status().code(),
              absl::StatusCode::kResourceExhausted);
  }
}

TEST(CreateCpuDeviceTest, RefusesALinkThatCannotBe) {
  const auto code = [](double bandwidth, absl::Duration latency) {
    return CreateCpuDevice({.budget_bytes = 4096,
                            .mode = CpuDeviceMode::kDiscrete,
                            .link_bytes_per_second = bandwidth,
                            .link_latency = latency})
        .status()
        .code();
  };
  EXPECT_EQ(code(-1, absl::ZeroDuration()), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(NAN, absl::ZeroDuration()), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(std::numeric_limits<double>::infinity(), absl::ZeroDuration()),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(1e9, -absl::Seconds(1)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(0, absl::Microseconds(10)), absl::StatusCode::kOk);
}

// What only streams with threads can show. `gate_` holds the work of a stream back.
class DiscreteCpuDeviceTest : public ::testing::Test {
 protected:
  std::function<absl::Status()> Gate() {
    return [this] {
      gate_.WaitForNotification();
      return absl::OkStatus();
    };
  }
  static std::function<absl::Status()> Set(int& place, int value) {
    return [&place, value] {
      place = value;
      return absl::OkStatus();
    };
  }

  absl::Notification gate_;
  std::unique_ptr<Device> device_ = *CreateCpuDevice(8192, CpuDeviceMode::kDiscrete);
  std::unique_ptr<Event> event_ = device_->CreateEvent();
};

TEST_F(DiscreteCpuDeviceTest, TheHostGoesOnWhileAStreamWorks) {
  std::unique_ptr<Stream> held = device_->CreateStream("held");
  std::unique_ptr<Stream> free = device_->CreateStream("free");
  int value = 0;
  held->RunOnHost(Gate());
  free->RunOnHost(Set(value, 1));
  EXPECT_TRUE(free->Synchronize().ok());
  EXPECT_EQ(value, 1);
  gate_.Notify();
  EXPECT_TRUE(held->Synchronize().ok());
}

TEST_F(DiscreteCpuDeviceTest, AWaitIsForWhatWasRecordedByThen) {
  std::unique_ptr<Stream> first = device_->CreateStream("first");
  std::unique_ptr<Stream> early = device_->CreateStream("early");
  std::unique_ptr<Stream> late = device_->CreateStream("late");
  int value = 0, seen = 0;
  first->Record(*event_);
  early->Wait(*event_);
  first->RunOnHost(Gate());
  first->RunOnHost(Set(value, 1));
  first->Record(*event_);
  late->Wait(*event_);
  late->RunOnHost([&] {
    seen = value;
    return absl::OkStatus();
  });
  // The newer point is behind the gate; who waited before it was recorded does not see it.
  EXPECT_TRUE(early->Synchronize().ok());
  gate_.Notify();
  EXPECT_TRUE(late->Synchronize().ok());
  EXPECT_EQ(seen, 1);
}

TEST_F(DiscreteCpuDeviceTest, ADestroyedStreamFinishesWhatItDoesAndWakesWhoWaits) {
  std::unique_ptr<Stream> doomed = device_->CreateStream("doomed");
  std::unique_ptr<Stream> waiting = device_->CreateStream("waiting");
  int done = 0, after = 0;
  doomed->RunOnHost(Gate());
  doomed->RunOnHost(Set(done, 1));
  doomed->Record(*event_);
  waiting->Wait(*event_);
  waiting->RunOnHost(Set(after, 1));
  gate_.Notify();
  doomed.reset();
  // Either it came to its work before it was destroyed, or the work was dropped.
  const absl::Status status = waiting->Synchronize();
  EXPECT_EQ(status.ok(), done == 1);
  EXPECT_EQ(after, done);
  if (!status.ok()) {
    EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  }
}

TEST_F(DiscreteCpuDeviceTest, AStreamCanBeDestroyedWhileItWaits) {
  std::unique_ptr<Stream> first = device_->CreateStream("first");
  std::unique_ptr<Stream> waiting = device_->CreateStream("waiting");
  first->RunOnHost([] { return absl::InternalError("broken"); });
  first->Record(*event_);
  waiting->Wait(*event_);
  waiting.reset();
  first.reset();
}

TEST_F(DiscreteCpuDeviceTest, AnEventOutlivesItsStream) {
  std::unique_ptr<Stream> first = device_->CreateStream("first");
  first->Record(*event_);
  ASSERT_TRUE(first->Synchronize().ok());
  first.reset();
  std::unique_ptr<Stream> second = device_->CreateStream("second");
  second->Wait(*event_);
  EXPECT_TRUE(second->Synchronize().ok());
}

TEST_F(DiscreteCpuDeviceTest, ManyStreamsPassABatonAround) {
  constexpr int kStreams = 4;
  constexpr int kRounds = 500;
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<Event>> events;
  for (int s = 0; s < kStreams; ++s) {
    streams.push_back(device_->CreateStream("stream"));
    events.push_back(device_->CreateEvent());
  }
  int64_t value = 0;  // not atomic: events alone keep the streams apart
  for (int round = 0; round < kRounds; ++round) {
    for (int s = 0; s < kStreams; ++s) {
      streams[s]->Wait(*events[(s + kStreams - 1) % kStreams]);
      streams[s]->RunOnHost([&value, s] {
        value = value * 3 + s;
        value %= 1'000'003;
        return absl::OkStatus();
      });
      streams[s]->Record(*events[s]);
    }
  }
  for (const std::unique_ptr<Stream>& stream : streams) ASSERT_TRUE(stream->Synchronize().ok());
  int64_t expected = 0;
  for (int i = 0; i < kRounds * kStreams; ++i) expected = (expected * 3 + i % kStreams) % 1'000'003;
  EXPECT_EQ(value, expected);
}

}  // namespace
}  // namespace millrace
