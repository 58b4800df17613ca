#include "engine/schedule/stalls.h"

#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace millrace {
namespace {

// A schedule written by hand, each instruction with when it ran.
struct Step {
  Schedule schedule;
  std::vector<Interval> intervals;

  int Add(Opcode opcode, StreamId stream, std::vector<int> waits, double start, double end) {
    Instruction instruction{.opcode = opcode, .stream = stream};
    instruction.waits = std::move(waits);
    schedule.instructions.push_back(std::move(instruction));
    intervals.push_back({start, end});
    return static_cast<int>(intervals.size()) - 1;
  }
  StepStalls Stalls() const { return AttributeStalls(schedule, intervals); }
};

TEST(StallsTest, ABusyComputeStreamHasNone) {
  Step step;
  step.Add(Opcode::kBlockForward, StreamId::kCompute, {}, 0, 1);
  step.Add(Opcode::kUpload, StreamId::kUpload, {}, 0, 1.5);
  step.Add(Opcode::kBlockForward, StreamId::kCompute, {1}, 1, 3);
  EXPECT_EQ(step.Stalls().total(), 0);
}

TEST(StallsTest, AnEmptyStepHasNone) { EXPECT_EQ(Step().Stalls().total(), 0); }

TEST(StallsTest, EachPartOfAGapCountsForWhatRanThen) {
  Step step;
  const int update = step.Add(Opcode::kUpdate, StreamId::kHost, {}, 0, 3);
  const int upload = step.Add(Opcode::kUpload, StreamId::kUpload, {update}, 3, 5);
  step.Add(Opcode::kBlockForward, StreamId::kCompute, {upload}, 5, 6);
  const StepStalls stalls = step.Stalls();
  EXPECT_DOUBLE_EQ(stalls.optimizer, 3);
  EXPECT_DOUBLE_EQ(stalls.weights, 2);
  EXPECT_DOUBLE_EQ(stalls.total(), 5);
}

TEST(StallsTest, OnlyTheGapCountsNotWhatWasHidden) {
  Step step;
  step.Add(Opcode::kBlockForward, StreamId::kCompute, {}, 0, 4);
  const int upload = step.Add(Opcode::kUpload, StreamId::kUpload, {}, 1, 6);
  const int fetch = step.Add(Opcode::kFetchInput, StreamId::kUpload, {}, 6, 7);
  step.Add(Opcode::kBlockForward, StreamId::kCompute, {upload, fetch}, 7, 8);
  const StepStalls stalls = step.Stalls();
  EXPECT_DOUBLE_EQ(stalls.weights, 2);
  EXPECT_DOUBLE_EQ(stalls.activations, 1);
  EXPECT_DOUBLE_EQ(stalls.total(), 3);
}

TEST(StallsTest, AGradientThatHasNotLeftHoldsUpTheNext) {
  Step step;
  const int first = step.Add(Opcode::kBlockBackward, StreamId::kCompute, {}, 0, 1);
  const int landed = step.Add(Opcode::kDownloadGradient, StreamId::kDownload, {first}, 1, 4);
  step.Add(Opcode::kBlockBackward, StreamId::kCompute, {landed}, 4, 5);
  EXPECT_DOUBLE_EQ(step.Stalls().gradients, 3);
  EXPECT_DOUBLE_EQ(step.Stalls().total(), 3);
}

TEST(StallsTest, TheEndOfAStepWaitsForEverybody) {
  Step step;
  const int data = step.Add(Opcode::kEmbedGather, StreamId::kHost, {}, 0, 1);
  const int rows = step.Add(Opcode::kUploadRows, StreamId::kUpload, {data}, 1, 2);
  const int last = step.Add(Opcode::kBlockBackward, StreamId::kCompute, {rows}, 2, 3);
  const int landed = step.Add(Opcode::kDownloadGradient, StreamId::kDownload, {last}, 3, 5);
  const int norm = step.Add(Opcode::kGradientNorm, StreamId::kHost, {landed}, 5, 6);
  step.Add(Opcode::kUpdate, StreamId::kHost, {norm}, 6, 9);
  const StepStalls stalls = step.Stalls();
  EXPECT_DOUBLE_EQ(stalls.data, 2);
  EXPECT_DOUBLE_EQ(stalls.gradients, 3);
  EXPECT_DOUBLE_EQ(stalls.optimizer, 3);
  EXPECT_DOUBLE_EQ(stalls.total(), 8);
}

// Lateness between what was waited for and the start counts for what was waited for.
TEST(StallsTest, AWakeUpCountsForWhatItFollows) {
  Step step;
  const int upload = step.Add(Opcode::kUpload, StreamId::kUpload, {}, 0, 2);
  step.Add(Opcode::kBlockForward, StreamId::kCompute, {upload}, 2.5, 3);
  EXPECT_DOUBLE_EQ(step.Stalls().weights, 2.5);
}

// One thread runs everything in the order of issue: the norm holds up the block after it, though
// nothing says that it must.
TEST(StallsTest, WithoutADependencyWhatRanInAGapIsItsCause) {
  Step step;
  const int first = step.Add(Opcode::kBlockBackward, StreamId::kCompute, {}, 0, 1);
  step.Add(Opcode::kGradientNorm, StreamId::kHost, {first}, 1, 2);
  step.Add(Opcode::kUpdate, StreamId::kHost, {}, 2, 5);
  step.Add(Opcode::kBlockBackward, StreamId::kCompute, {}, 5, 6);
  const StepStalls stalls = step.Stalls();
  EXPECT_DOUBLE_EQ(stalls.gradients, 1);
  EXPECT_DOUBLE_EQ(stalls.optimizer, 3);
  EXPECT_DOUBLE_EQ(stalls.total(), 4);
}

// What was over long ago, or runs on beside, is no cause of a gap.
TEST(StallsTest, WhatNothingExplainsIsTheLaunchOfWork) {
  Step step;
  const int upload = step.Add(Opcode::kUpload, StreamId::kUpload, {}, 0, 1);
  step.Add(Opcode::kBlockForward, StreamId::kCompute, {upload}, 1, 2);
  step.Add(Opcode::kUpload, StreamId::kUpload, {}, 1, 4);
  step.Add(Opcode::kBlockForward, StreamId::kCompute, {upload}, 2.5, 4);
  const StepStalls stalls = step.Stalls();
  EXPECT_DOUBLE_EQ(stalls.weights, 1);
  EXPECT_DOUBLE_EQ(stalls.data, 0.5);
  EXPECT_DOUBLE_EQ(stalls.total(), 1.5);
}

}  // namespace
}  // namespace millrace
