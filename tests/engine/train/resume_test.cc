// Rule 2 of the design: interrupted anywhere and resumed, a run ends bitwise equal to one that was
// never interrupted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/train/checkpoint_folder.h"
#include "engine/train/trainer.h"
#include "tests/engine/train/training_fixture.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using Outcome = TrainResult::Outcome;

// Recipe, compute type, optimizer, clip norm.
using Case = std::tuple<Recipe, DType, OptimizerKind, double>;

class ResumeTest : public testing::TestWithParam<Case> {
 protected:
  ResumeTest() {
    std::tie(spec_.recipe, spec_.compute, spec_.optimizer, spec_.clip_norm) = GetParam();
    spec_.sample_every_steps = 3;
    spec_.prompts = {"The mill"};
    spec_.sample_max_tokens = 4;
  }

  // Runs in `folder`, asking for an end after `end_after` steps (0: never).
  TrainResult Run(const std::string& folder, int64_t end_after, bool cancel,
                  RecordingObserver& observer) {
    StopControl stop;
    observer.on_step = [&](int64_t step) {
      if (step == end_after) cancel ? stop.RequestCancel() : stop.RequestStop("PAUSE");
    };
    const auto result = Train(spec_, folder, observer, stop);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : TrainResult{Outcome::kCancelled, -1};
  }

  // Hashes of all files of the last checkpoint: weights, moments, cursor, everything.
  std::vector<std::string> FinalState(const std::string& folder) {
    std::vector<std::string> hashes;
    const auto info = ReadManifest(folder + "/checkpoints/12");
    EXPECT_TRUE(info.ok()) << info.status();
    if (!info.ok()) return hashes;
    for (const WrittenFile& file : info->files) hashes.push_back(file.name + " " + file.sha256);
    return hashes;
  }

  // What must be the same whenever a step is made again.
  static std::vector<std::tuple<int64_t, double, double, double, int64_t>> Numbers(
      const std::vector<StepMetrics>& steps) {
    std::vector<std::tuple<int64_t, double, double, double, int64_t>> numbers;
    for (const StepMetrics& m : steps) {
      numbers.push_back({m.step, m.loss, m.gradient_norm, m.learning_rate, m.total_tokens});
    }
    return numbers;
  }

  TrainSpec spec_ = SmallJob(WriteText(NewJobFolder()));
};

TEST_P(ResumeTest, StoppedAfterEveryStepItEndsBitwiseTheSame) {
  const std::string whole = NewJobFolder(), folder = NewJobFolder();
  RecordingObserver expected, observer;
  ASSERT_EQ(Run(whole, 0, false, expected).outcome, Outcome::kSucceeded);
  for (int64_t end = 1; end < 12; ++end) {
    ASSERT_EQ(Run(folder, end, false, observer).outcome, Outcome::kStopped);
    EXPECT_EQ(observer.start_step, end - 1);
  }
  ASSERT_EQ(Run(folder, 0, false, observer).outcome, Outcome::kSucceeded);
  EXPECT_EQ(Numbers(observer.steps), Numbers(expected.steps));
  EXPECT_EQ(FinalState(folder), FinalState(whole));
}

TEST_P(ResumeTest, LostSinceTheLastCheckpointItIsMadeAgainBitwiseTheSame) {
  const std::string whole = NewJobFolder();
  RecordingObserver expected;
  ASSERT_EQ(Run(whole, 0, false, expected).outcome, Outcome::kSucceeded);
  const std::string folder = NewJobFolder();
  // Each end and the checkpoint that the next start finds.
  for (const auto& [end, start] : {std::pair<int64_t, int64_t>{3, 0}, {6, 0}, {11, 4}}) {
    RecordingObserver observer;
    ASSERT_EQ(Run(folder, end, true, observer).outcome, Outcome::kCancelled);
    EXPECT_EQ(observer.start_step, start);
  }
  RecordingObserver last;
  ASSERT_EQ(Run(folder, 0, false, last).outcome, Outcome::kSucceeded);
  EXPECT_EQ(FinalState(folder), FinalState(whole));
  ASSERT_FALSE(last.samples.empty());
  EXPECT_EQ(last.samples.back().text, expected.samples.back().text);
  EXPECT_EQ(last.evaluations.back().loss, expected.evaluations.back().loss);
}

std::string NameOfCase(const testing::TestParamInfo<Case>& info) {
  const auto& [recipe, compute, optimizer, clip] = info.param;
  return std::string(NameOf(recipe)) + "_" + std::string(NameOf(compute)) + "_" +
         std::string(NameOf(optimizer)) + (clip > 0 ? "_clipped" : "_unclipped");
}

const auto kOptimizers =
    testing::Values(OptimizerKind::kAdamW, OptimizerKind::kSgd, OptimizerKind::kLion);

INSTANTIATE_TEST_SUITE_P(
    Bf16, ResumeTest,
    testing::Combine(testing::Values(Recipe::kFull, Recipe::kLean, Recipe::kTiny),
                     testing::Values(DType::kBF16), kOptimizers, testing::Values(1.0)),
    NameOfCase);
INSTANTIATE_TEST_SUITE_P(
    F32, ResumeTest,
    testing::Combine(testing::Values(Recipe::kFull, Recipe::kLean, Recipe::kFp32),
                     testing::Values(DType::kF32), testing::Values(OptimizerKind::kAdamW),
                     testing::Values(1.0)),
    NameOfCase);
INSTANTIATE_TEST_SUITE_P(Unclipped, ResumeTest,
                         testing::Combine(testing::Values(Recipe::kFull, Recipe::kTiny),
                                          testing::Values(DType::kBF16),
                                          testing::Values(OptimizerKind::kAdamW),
                                          testing::Values(0.0)),
                         NameOfCase);

TEST(DamagedCheckpointTest, ARunGoesOnFromTheOneBeforeAndEndsTheSame) {
  const TrainSpec spec = SmallJob(WriteText(NewJobFolder()));
  const std::string whole = NewJobFolder(), folder = NewJobFolder();
  StopControl none;
  RecordingObserver expected;
  ASSERT_TRUE(Train(spec, whole, expected, none).ok());

  StopControl stop;
  RecordingObserver observer;
  observer.on_step = [&](int64_t step) {
    if (step == 10) stop.RequestStop("PAUSE");
  };
  ASSERT_TRUE(Train(spec, folder, observer, stop).ok());
  fs::resize_file(folder + "/checkpoints/10/optimizer_state.bin", 1000);
  RecordingObserver resumed;
  ASSERT_TRUE(Train(spec, folder, resumed, none).ok());
  EXPECT_EQ(resumed.start_step, 8);
  EXPECT_EQ(resumed.warnings.size(), 1u);
  const auto a = ReadManifest(whole + "/checkpoints/12"),
             b = ReadManifest(folder + "/checkpoints/12");
  ASSERT_TRUE(a.ok() && b.ok());
  ASSERT_EQ(a->files.size(), b->files.size());
  for (size_t i = 0; i < a->files.size(); ++i) EXPECT_EQ(a->files[i].sha256, b->files[i].sha256);
}

}  // namespace
}  // namespace millrace
