#include "engine/train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/train/checkpoint_folder.h"
#include "tests/engine/train/training_fixture.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Outcome = TrainResult::Outcome;

class TrainerTest : public testing::Test {
 protected:
  absl::StatusOr<TrainResult> Run(const TrainSpec& spec, RecordingObserver& observer) {
    return Train(spec, folder_, observer, stop_);
  }
  std::vector<int64_t> SavedSteps() {
    std::vector<int64_t> steps;
    for (const CheckpointInfo& info : ListCheckpoints(folder_ + "/checkpoints")) {
      steps.push_back(info.step);
    }
    return steps;
  }
  // The failure of `spec`, which must fail before its first step.
  absl::Status FailureOf(const TrainSpec& spec) {
    RecordingObserver observer;
    const auto result = Run(spec, observer);
    EXPECT_FALSE(result.ok());
    EXPECT_THAT(observer.steps, IsEmpty());
    EXPECT_EQ(FailureReasonOf(result.status()), FailureReason::kInvalid) << result.status();
    return result.status();
  }

  const std::string folder_ = NewJobFolder();
  const TrainSpec spec_ = SmallJob(WriteText(folder_));
  StopControl stop_;
};

TEST_F(TrainerTest, LearnsRepeatedText) {
  TrainSpec spec = spec_;
  spec.steps = 120;
  spec.tokens_per_step = 512;
  spec.tokens_per_micro_batch = 256;
  spec.checkpoint_every_steps = 0;
  RecordingObserver observer;
  const auto result = Run(spec, observer);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->outcome, Outcome::kSucceeded);
  EXPECT_NEAR(observer.steps.front().loss, std::log(257.0), 0.1);
  EXPECT_LT(observer.steps.back().loss, 0.5);
  ASSERT_EQ(observer.evaluations.size(), 1u);
  EXPECT_LT(observer.evaluations.back().loss, 0.5);
}

TEST_F(TrainerTest, ReportsEachStepWithItsMetrics) {
  RecordingObserver observer;
  const auto result = Run(spec_, observer);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->step, 12);
  EXPECT_EQ(observer.start_step, 0);
  ASSERT_EQ(observer.steps.size(), 12u);
  for (size_t i = 0; i < 12; ++i) {
    const StepMetrics& metrics = observer.steps[i];
    const int64_t step = static_cast<int64_t>(i) + 1;
    EXPECT_EQ(metrics.step, step);
    EXPECT_EQ(metrics.tokens, 128);
    EXPECT_EQ(metrics.total_tokens, 128 * step);
    EXPECT_DOUBLE_EQ(metrics.learning_rate, LearningRateAt(ScheduleOf(observer.resolved), step));
    EXPECT_GT(metrics.gradient_norm, 0);
    EXPECT_GT(metrics.step_seconds, 0);
    EXPECT_GT(metrics.tokens_per_second, 0);
    EXPECT_GT(metrics.speed_of_light_ratio, 0);
    EXPECT_LT(metrics.speed_of_light_ratio, 1);
  }
}

TEST_F(TrainerTest, SavesEvaluatesAndSamplesWhenDue) {
  TrainSpec spec = spec_;
  spec.sample_every_steps = 5;
  spec.prompts = {"The mill", "Again"};
  spec.sample_max_tokens = 8;
  spec.keep_last = 9;
  RecordingObserver observer;
  ASSERT_TRUE(Run(spec, observer).ok());
  std::vector<int64_t> saved, evaluated, sampled;
  for (const auto& event : observer.checkpoints) saved.push_back(event.step);
  for (const auto& event : observer.evaluations) evaluated.push_back(event.step);
  for (const auto& event : observer.samples) sampled.push_back(event.step);
  EXPECT_THAT(saved, ElementsAre(4, 8, 12));
  EXPECT_THAT(evaluated, ElementsAre(4, 8, 12));
  EXPECT_THAT(sampled, ElementsAre(5, 5, 10, 10, 12, 12));
  EXPECT_EQ(observer.samples[1].prompt, "Again");
  EXPECT_EQ(observer.checkpoints[0].trigger, "SCHEDULED");
  EXPECT_EQ(observer.checkpoints[2].trigger, "FINAL");
  EXPECT_GT(observer.checkpoints[0].size_bytes, 0);
  EXPECT_THAT(SavedSteps(), ElementsAre(12, 8, 4));
}

TEST_F(TrainerTest, ShowsMemoryByPurpose) {
  RecordingObserver observer;
  ASSERT_TRUE(Run(spec_, observer).ok());
  ASSERT_FALSE(observer.memory.empty());
  std::vector<std::string> purposes;
  for (const MemoryPool& pool : observer.memory.back().pools) {
    purposes.push_back(pool.purpose);
    EXPECT_GT(pool.bytes, 0) << pool.purpose;
  }
  EXPECT_THAT(purposes, testing::IsSupersetOf({"weights", "optimizer", "gradients", "activations",
                                               "workspace", "data"}));
  EXPECT_GT(observer.memory.back().peak_resident_bytes, 0);
  EXPECT_GT(observer.memory.back().peak_device_bytes, observer.memory.front().peak_device_bytes);
}

TEST_F(TrainerTest, KeepsTheNewestAndTheBest) {
  TrainSpec spec = spec_;
  spec.checkpoint_every_steps = 2;
  spec.keep_last = 2;
  spec.keep_best = 1;
  RecordingObserver observer;
  ASSERT_TRUE(Run(spec, observer).ok());
  int64_t best = 0;
  double lowest = 1e9;
  for (const auto& event : observer.evaluations) {
    if (event.loss < lowest) {
      lowest = event.loss;
      best = event.step;
    }
  }
  const std::set<int64_t> expected = {12, 10, best};
  EXPECT_THAT(SavedSteps(), testing::UnorderedElementsAreArray(expected));
}

TEST_F(TrainerTest, CancelEndsWithoutACheckpoint) {
  RecordingObserver observer;
  observer.on_step = [this](int64_t step) {
    if (step == 6) stop_.RequestCancel();
  };
  const auto result = Run(spec_, observer);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->outcome, Outcome::kCancelled);
  EXPECT_THAT(SavedSteps(), ElementsAre(4));
}

TEST_F(TrainerTest, StopFinishesTheStepAndSavesIt) {
  RecordingObserver observer;
  observer.on_step = [this](int64_t step) {
    if (step == 6) stop_.RequestStop("PAUSE");
  };
  const auto result = Run(spec_, observer);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->outcome, Outcome::kStopped);
  EXPECT_EQ(result->step, 6);
  EXPECT_EQ(observer.checkpoints.back().trigger, "PAUSE");
  EXPECT_EQ(SavedSteps().front(), 6);
}

TEST_F(TrainerTest, StoppedBeforeItsFirstStepARunNeedsNoCheckpoint) {
  stop_.RequestStop("SHUTDOWN");
  RecordingObserver observer;
  const auto result = Run(spec_, observer);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->outcome, Outcome::kStopped);
  EXPECT_EQ(result->step, 0);
  EXPECT_THAT(SavedSteps(), IsEmpty());
}

// Makes weights of a checkpoint NaN.
void SpoilWeights(const std::string& checkpoints, int64_t step, const TrainSpec& resolved) {
  const std::string folder = absl::StrCat(checkpoints, "/", step);
  const auto model = ReadModelDirectoryConfig(folder);
  ASSERT_TRUE(model.ok()) << model.status();
  ThreadPool pool(1);
  auto state = HostState::Create(MakeSlabLayouts(*model), resolved.recipe, *resolved.compute, pool);
  ASSERT_TRUE(state.ok()) << state.status();
  ASSERT_TRUE(ReadHostState(folder, *model, pool, state->get()).ok());
  const TensorLayout* tensor = (*state)->layout(1).Find(TensorRole::kMlpOut);
  const std::vector<float> nan(static_cast<size_t>(tensor->count()),
                               std::numeric_limits<float>::quiet_NaN());
  (*state)->WriteMaster(1, tensor->offset, nan);
  ASSERT_TRUE(WriteCheckpoint(checkpoints, *model, **state, *ReadTrainerState(folder)).ok());
}

TEST_F(TrainerTest, NonFiniteLossFailsTheRunAndKeepsTheLastGoodCheckpoint) {
  for (double clip_norm : {0.0, 1.0}) {
    TrainSpec spec = spec_;
    spec.clip_norm = clip_norm;
    const std::string folder = NewJobFolder();
    RecordingObserver good;
    StopControl stop;
    good.on_step = [&stop](int64_t step) {
      if (step == 5) stop.RequestStop("PAUSE");
    };
    ASSERT_TRUE(Train(spec, folder, good, stop).ok());
    SpoilWeights(folder + "/checkpoints", 5, good.resolved);

    RecordingObserver observer;
    const auto result = Train(spec, folder, observer, stop_);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(FailureReasonOf(result.status()), FailureReason::kNonFiniteLoss) << result.status();
    const std::string message(result.status().message());
    EXPECT_THAT(message, AllOf(HasSubstr("step 6"), HasSubstr("train.optimizer.learning_rate")));
    EXPECT_EQ(absl::StrContains(message, "the step was not applied"), clip_norm > 0) << message;
    EXPECT_THAT(observer.steps, IsEmpty());
    const auto saved = ListCheckpoints(folder + "/checkpoints");
    ASSERT_FALSE(saved.empty());
    EXPECT_EQ(saved.front().step, 5);
    EXPECT_TRUE(VerifyHashes(saved.front()).ok());
  }
}

TEST_F(TrainerTest, WeightsThatGiveNoLossAreNotSaved) {
  TrainSpec spec = spec_;
  spec.learning_rate = 1e39;  // beyond f32
  spec.warmup_steps = 0;
  spec.checkpoint_every_steps = 1;
  RecordingObserver observer;
  const auto result = Run(spec, observer);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(FailureReasonOf(result.status()), FailureReason::kNonFiniteLoss) << result.status();
  EXPECT_THAT(SavedSteps(), IsEmpty());
}

TEST_F(TrainerTest, WeightsThatAreNotFiniteAreNotSavedWithoutAnEvaluationEither) {
  TrainSpec spec = spec_;
  spec.learning_rate = 1e39;  // beyond f32
  spec.warmup_steps = 0;
  spec.checkpoint_every_steps = 1;
  spec.evaluate_every_steps = 0;
  RecordingObserver observer;
  const auto result = Run(spec, observer);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(FailureReasonOf(result.status()), FailureReason::kNonFiniteLoss) << result.status();
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("no checkpoint was made"));
  EXPECT_THAT(SavedSteps(), IsEmpty());
}

TEST_F(TrainerTest, AStopLeavesOutTheRestOfAnEvaluationAndOfSamples) {
  TrainSpec spec = spec_;
  spec.sample_every_steps = 4;
  spec.prompts = {"The mill", "Again"};
  RecordingObserver observer;
  observer.on_step = [this](int64_t step) {
    if (step == 4) stop_.RequestStop("PAUSE");
  };
  const auto result = Run(spec, observer);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->outcome, Outcome::kStopped);
  EXPECT_EQ(result->step, 4);
  EXPECT_THAT(observer.evaluations, IsEmpty());
  EXPECT_THAT(observer.samples, IsEmpty());
  EXPECT_THAT(SavedSteps(), ElementsAre(4));
}

TEST_F(TrainerTest, AStopInTheLastStepLeavesItsResultWhole) {
  RecordingObserver observer;
  observer.on_step = [this](int64_t step) {
    if (step == 12) stop_.RequestStop("PAUSE");
  };
  const auto result = Run(spec_, observer);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->outcome, Outcome::kSucceeded);
  EXPECT_EQ(observer.evaluations.back().step, 12);
  EXPECT_EQ(observer.checkpoints.back().trigger, "FINAL");
}

TEST_F(TrainerTest, AnotherSpecIsRefusedByTheFieldsName) {
  RecordingObserver observer;
  ASSERT_TRUE(Run(spec_, observer).ok());
  TrainSpec other = spec_;
  other.steps = 20;
  other.weight_decay = 0.2;
  EXPECT_THAT(std::string(FailureOf(other).message()),
              AllOf(HasSubstr("train.optimizer.weight_decay"), HasSubstr("train.steps"),
                    HasSubstr("step 12")));
}

TEST_F(TrainerTest, BadInputIsNamedByItsField) {
  TrainSpec spec = spec_;
  spec.tokens_per_step = 100;
  EXPECT_THAT(std::string(FailureOf(spec).message()), HasSubstr("train.tokens_per_step: 100"));

  spec = spec_;
  spec.sequence_length = 128;
  spec.tokens_per_micro_batch.reset();
  EXPECT_THAT(std::string(FailureOf(spec).message()),
              AllOf(HasSubstr("data.sequence_length: 128"), HasSubstr("(64)")));

  spec = spec_;
  spec.model_config_json = R"({"model_type": "llama", "hidden_size": 33, "num_hidden_layers": 2,
      "num_attention_heads": 4, "intermediate_size": 64, "max_position_embeddings": 64})";
  EXPECT_THAT(std::string(FailureOf(spec).message()), HasSubstr("model.config."));

  spec = spec_;
  spec.data_path = folder_ + "/nothing.txt";
  EXPECT_THAT(std::string(FailureOf(spec).message()), HasSubstr("nothing.txt"));

  spec = spec_;
  spec.data_path = folder_ + "/short.txt";
  std::ofstream(spec.data_path) << "short";
  EXPECT_FALSE(FailureOf(spec).message().empty());

  spec = spec_;
  spec.device_budget_bytes = 1000;
  EXPECT_THAT(std::string(FailureOf(spec).message()), HasSubstr("memory.device_budget"));

  spec = spec_;
  spec.host_budget_bytes = 1000;
  EXPECT_THAT(std::string(FailureOf(spec).message()), HasSubstr("memory.host_budget"));
}

}  // namespace
}  // namespace millrace
