#include "engine/schedule/simulator.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace millrace {
namespace {

// A schedule by hand: opcode, stream, waits, and what each instruction asks for.
class ByHand {
 public:
  int Add(Opcode opcode, StreamId stream, Work work, std::vector<int> waits = {}) {
    Instruction instruction{.opcode = opcode, .stream = stream};
    instruction.waits = std::move(waits);
    schedule.instructions.push_back(std::move(instruction));
    this->work.push_back(work);
    return static_cast<int>(schedule.instructions.size()) - 1;
  }
  int Compute(double seconds, std::vector<int> waits = {}) {
    return Add(Opcode::kBlockForward, StreamId::kCompute, Uses(Resource::kDevice, seconds),
               std::move(waits));
  }
  int Upload(double seconds, std::vector<int> waits = {}, double memory = 0) {
    Work work = Uses(Resource::kToDevice, seconds);
    work[Resource::kHostMemory] = memory;
    return Add(Opcode::kUpload, StreamId::kUpload, work, std::move(waits));
  }
  int Update(double seconds, std::vector<int> waits = {}) {
    return Add(Opcode::kUpdate, StreamId::kHost, Uses(Resource::kHostMemory, seconds),
               std::move(waits));
  }
  static Work Uses(Resource resource, double seconds) {
    Work work;
    work[resource] = seconds;
    return work;
  }
  Simulation Run(bool unified = false) const { return Simulate(schedule, work, unified); }

  Schedule schedule;
  std::vector<Work> work;
};

TEST(SimulatorTest, StreamsOverlapAndWaitForOneAnother) {
  ByHand hand;
  const int first = hand.Upload(2);
  hand.Compute(5, {first});
  const int second = hand.Upload(2);
  hand.Compute(5, {second});
  const Simulation step = hand.Run();
  EXPECT_DOUBLE_EQ(step.seconds, 12);
  EXPECT_DOUBLE_EQ(step.intervals[2].start, 2);
  EXPECT_DOUBLE_EQ(step.intervals[2].end, 4);
  EXPECT_DOUBLE_EQ(step.intervals[3].start, 7);
  EXPECT_DOUBLE_EQ(step.device_busy_seconds, 10);
  EXPECT_NEAR(step.device_idle_ratio(), 2.0 / 12, 1e-12);
  EXPECT_DOUBLE_EQ(step.stalls.weights, 2);
  EXPECT_DOUBLE_EQ(step.utilization(Resource::kToDevice), 4.0 / 12);
}

TEST(SimulatorTest, ASlowLinkIsTheStepsTime) {
  ByHand hand;
  int upload = hand.Upload(4);
  for (int i = 0; i < 3; ++i) {
    hand.Compute(1, {upload});
    if (i < 2) upload = hand.Upload(4);
  }
  const Simulation step = hand.Run();
  EXPECT_DOUBLE_EQ(step.seconds, 13);
  EXPECT_DOUBLE_EQ(step.stalls.weights, 10);
}

TEST(SimulatorTest, UnifiedRunsOneAfterTheOther) {
  ByHand hand;
  hand.Upload(2);
  hand.Compute(5);
  hand.Update(3);
  EXPECT_DOUBLE_EQ(hand.Run(/*unified=*/true).seconds, 10);
  EXPECT_DOUBLE_EQ(hand.Run(/*unified=*/false).seconds, 5);
}

TEST(SimulatorTest, WhoNeedsLessThanAnEvenShareGetsItAndTheOthersTheRest) {
  // The upload takes a quarter of the memory's bandwidth; the update gets what is left.
  ByHand hand;
  hand.Upload(4, {}, /*memory=*/1);
  hand.Update(3);
  const Simulation step = hand.Run();
  EXPECT_NEAR(step.intervals[0].end, 4, 1e-9);
  EXPECT_NEAR(step.intervals[1].end, 4, 1e-9);
}

TEST(SimulatorTest, TwoThatNeedTheWholeGoAtHalfSpeedUntilOneIsDone) {
  ByHand hand;
  hand.Upload(1, {}, /*memory=*/1);
  hand.Update(3);
  const Simulation step = hand.Run();
  EXPECT_NEAR(step.intervals[0].end, 2, 1e-9);
  EXPECT_NEAR(step.seconds, 4, 1e-9);
}

TEST(SimulatorTest, LatencyComesBeforeTheWorkAndTakesNoResource) {
  ByHand hand;
  Work work = ByHand::Uses(Resource::kToDevice, 1);
  work.latency = 0.5;
  hand.Add(Opcode::kUpload, StreamId::kUpload, work);
  hand.Add(Opcode::kUpload, StreamId::kUpload, work);
  EXPECT_NEAR(hand.Run().seconds, 3, 1e-9);
}

TEST(SimulatorTest, EachPartOfAStallCountsForWhatRanThen) {
  // The first upload waits for an update, as the step's first compute does for both.
  ByHand hand;
  const int update = hand.Update(3);
  const int upload = hand.Upload(2, {update});
  const int compute = hand.Compute(5, {upload});
  const int download = hand.Add(Opcode::kDownloadGradient, StreamId::kDownload,
                                ByHand::Uses(Resource::kToHost, 1), {compute});
  hand.Add(Opcode::kGradientNorm, StreamId::kHost, ByHand::Uses(Resource::kHostCores, 0.5),
           {download});
  const Simulation step = hand.Run();
  EXPECT_DOUBLE_EQ(step.seconds, 11.5);
  EXPECT_DOUBLE_EQ(step.stalls.optimizer, 3);
  EXPECT_DOUBLE_EQ(step.stalls.weights, 2);
  EXPECT_DOUBLE_EQ(step.stalls.gradients, 1.5);
  EXPECT_DOUBLE_EQ(step.stalls.total() + step.device_busy_seconds, step.seconds);
}

// Random schedules whose waits go backward.
ByHand RandomSchedule(std::mt19937& random) {
  const auto real = [&] { return std::uniform_real_distribution<double>(0, 1)(random); };
  ByHand hand;
  for (int i = 0; i < 60; ++i) {
    Work work;
    work.latency = real() < 0.2 ? real() : 0;
    for (double& seconds : work.seconds) seconds = real() < 0.4 ? real() : 0;
    std::vector<int> waits;
    for (int w = 0; w < 2 && i > 0; ++w) waits.push_back(static_cast<int>(random() % i));
    hand.Add(Opcode::kBlockForward, static_cast<StreamId>(random() % kNumStreams), work,
             std::move(waits));
  }
  return hand;
}

TEST(SimulatorTest, NoStepIsFasterThanItsLongestChainOrItsBusiestResource) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const ByHand hand = RandomSchedule(random);
    const Simulation step = hand.Run();
    const Simulation serial = hand.Run(/*unified=*/true);
    std::vector<double> chain(hand.work.size(), 0);
    std::array<double, kNumStreams> stream_end = {};
    double longest = 0;
    for (size_t i = 0; i < hand.work.size(); ++i) {
      const Instruction& instruction = hand.schedule.instructions[i];
      double& end = stream_end[static_cast<size_t>(instruction.stream)];
      for (int wait : instruction.waits) end = std::max(end, chain[wait]);
      end += hand.work[i].alone();
      chain[i] = end;
      longest = std::max(longest, end);
      for (int wait : instruction.waits) {
        EXPECT_GE(step.intervals[i].start, step.intervals[wait].end - 1e-9);
      }
    }
    EXPECT_GE(step.seconds, longest - 1e-9);
    for (double used : step.used_seconds) EXPECT_GE(step.seconds, used - 1e-6);
    EXPECT_LE(step.seconds, serial.seconds + 1e-6);
    EXPECT_NEAR(step.stalls.total() + step.device_busy_seconds, step.seconds, 1e-6);
  }
}

TEST(SimulatorTest, SameArgumentsSameAnswer) {
  std::mt19937 random(2);
  const ByHand hand = RandomSchedule(random);
  const Simulation a = hand.Run(), b = hand.Run();
  for (size_t i = 0; i < a.intervals.size(); ++i) {
    EXPECT_EQ(a.intervals[i].start, b.intervals[i].start);
    EXPECT_EQ(a.intervals[i].end, b.intervals[i].end);
  }
}

TEST(SimulatorTest, NothingTakesNoTime) { EXPECT_EQ(ByHand().Run().seconds, 0); }

}  // namespace
}  // namespace millrace
