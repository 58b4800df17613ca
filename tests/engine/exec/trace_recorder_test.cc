#include "engine/exec/trace_recorder.h"

#include <atomic>
#include <memory>
#include <vector>

#include "engine/device/cpu/cpu_device.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

class TraceRecorderTest : public ::testing::TestWithParam<CpuDeviceMode> {
 protected:
  // As the executor does.
  void Run(const Schedule& schedule) {
    std::vector<std::unique_ptr<Stream>> streams;
    std::vector<std::unique_ptr<Event>> events;
    for (int s = 0; s < kNumStreams; ++s) {
      streams.push_back(device_->CreateStream(NameOf(static_cast<StreamId>(s))));
    }
    recorder_.Begin(schedule);
    for (size_t i = 0; i < schedule.instructions.size(); ++i) {
      const Instruction& instruction = schedule.instructions[i];
      Stream& stream = *streams[static_cast<size_t>(instruction.stream)];
      for (int wait : instruction.waits) stream.Wait(*events[static_cast<size_t>(wait)]);
      recorder_.Start(stream, static_cast<int>(i));
      stream.RunOnHost([this] {
        ++work_;
        return absl::OkStatus();
      });
      recorder_.End(stream, static_cast<int>(i));
      events.push_back(device_->CreateEvent());
      stream.Record(*events.back());
    }
    for (const std::unique_ptr<Stream>& stream : streams) ASSERT_TRUE(stream->Synchronize().ok());
  }

  std::atomic<int> work_{0};
  std::unique_ptr<Device> device_ = *CreateCpuDevice(4096, GetParam());
  TraceRecorder recorder_;
};
INSTANTIATE_TEST_SUITE_P(Modes, TraceRecorderTest,
                         ::testing::Values(CpuDeviceMode::kUnified, CpuDeviceMode::kDiscrete));

TEST_P(TraceRecorderTest, TimesAreInTheOrderOfStreamsAndWaits) {
  Schedule schedule;
  for (int i = 0; i < 60; ++i) {
    Instruction instruction{.opcode = Opcode::kUpload,
                            .stream = static_cast<StreamId>(i % kNumStreams)};
    if (i >= 3) instruction.waits = {i - 3};
    schedule.instructions.push_back(instruction);
  }
  Run(schedule);
  const std::vector<Interval>& intervals = recorder_.intervals();
  ASSERT_EQ(intervals.size(), 60u);
  for (int i = 0; i < 60; ++i) {
    EXPECT_GT(intervals[i].start, 0);
    EXPECT_GE(intervals[i].end, intervals[i].start);
    for (int before : {i - 3, i - kNumStreams}) {
      if (before < 0) continue;
      EXPECT_GE(intervals[i].start, intervals[before].end);
    }
  }
  EXPECT_EQ(work_.load(), 60);
}

TEST_P(TraceRecorderTest, BeginsAnew) {
  Schedule schedule;
  schedule.instructions = {{.opcode = Opcode::kUpload, .stream = StreamId::kUpload},
                           {.opcode = Opcode::kUpdate, .stream = StreamId::kCompute}};
  Run(schedule);
  const double first = recorder_.begin_seconds() + recorder_.intervals()[1].end;
  schedule.instructions.pop_back();
  Run(schedule);
  EXPECT_EQ(recorder_.intervals().size(), 1u);
  EXPECT_GE(recorder_.begin_seconds(), first);
}

}  // namespace
}  // namespace millrace
