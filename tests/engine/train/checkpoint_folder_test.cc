#include "engine/train/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "tests/engine/train/checkpoint_fixture.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

CheckpointInfo Evaluated(int64_t step, std::optional<double> loss) {
  CheckpointInfo info;
  info.step = step;
  info.evaluation_loss = loss;
  return info;
}

TEST(StepsToRemoveTest, KeepsTheNewest) {
  EXPECT_THAT(StepsToRemove({Evaluated(1, {}), Evaluated(3, {}), Evaluated(2, {})},
                            {.keep_last = 2, .keep_best = 5}),
              ElementsAre(1));
}

TEST(StepsToRemoveTest, KeepsTheBestBesides) {
  EXPECT_THAT(StepsToRemove({Evaluated(1, 2.0), Evaluated(2, 1.0), Evaluated(3, 3.0),
                             Evaluated(4, 4.0), Evaluated(5, {})},
                            {.keep_last = 1, .keep_best = 2}),
              ElementsAre(4, 3));
}

TEST(StepsToRemoveTest, ABestOneAmongTheNewestCountsAsBest) {
  EXPECT_THAT(StepsToRemove({Evaluated(1, 3.0), Evaluated(2, 2.0), Evaluated(3, 1.0)},
                            {.keep_last = 1, .keep_best = 1}),
              ElementsAre(2, 1));
}

TEST(StepsToRemoveTest, NeverRemovesTheNewest) {
  EXPECT_THAT(
      StepsToRemove({Evaluated(1, 1.0), Evaluated(2, {})}, {.keep_last = 0, .keep_best = 0}),
      ElementsAre(1));
}

TEST(StepsToRemoveTest, OfEqualLossesTheOlderStays) {
  EXPECT_THAT(StepsToRemove({Evaluated(1, 1.0), Evaluated(2, 1.0), Evaluated(3, {})},
                            {.keep_last = 1, .keep_best = 1}),
              ElementsAre(2));
}

class CheckpointFolderTest : public testing::Test {
 protected:
  void Write(int64_t step, std::optional<double> loss = std::nullopt) {
    TrainerState trainer_state = StateOfStep(step);
    trainer_state.evaluation_loss = loss;
    const auto info = WriteCheckpoint(folder_, model_, *state_, trainer_state);
    ASSERT_TRUE(info.ok()) << info.status();
  }

  std::vector<int64_t> Listed() {
    std::vector<int64_t> steps;
    for (const CheckpointInfo& info : ListCheckpoints(folder_)) steps.push_back(info.step);
    return steps;
  }

  const ModelSpec model_ = TinyLlama();
  const std::unique_ptr<HostState> state_ = RandomState(model_, DType::kBF16, 1);
  const std::string folder_ = NewFolder();
  std::vector<std::string> warnings_;
  const std::function<void(absl::string_view)> warn_ = [this](absl::string_view message) {
    warnings_.emplace_back(message);
  };
};

TEST_F(CheckpointFolderTest, ListsCompleteOnesByNumberNewestFirst) {
  for (int64_t step : {9, 100, 20}) Write(step);
  fs::create_directories(folder_ + "/300");
  fs::create_directories(folder_ + "/.writing-400");
  fs::create_directories(folder_ + "/notes");
  fs::remove(folder_ + "/20/trainer_state.json");
  EXPECT_THAT(Listed(), ElementsAre(100, 9));
}

TEST_F(CheckpointFolderTest, AFolderThatIsNotThereHasNone) {
  EXPECT_THAT(ListCheckpoints(folder_ + "/nowhere"), IsEmpty());
  EXPECT_TRUE(RemoveLeftovers(folder_ + "/nowhere").ok());
  const auto newest = NewestIntactCheckpoint(folder_ + "/nowhere", warn_);
  ASSERT_TRUE(newest.ok());
  EXPECT_FALSE(newest->has_value());
}

TEST_F(CheckpointFolderTest, RemovesWhatInterruptionsLeftAndNothingElse) {
  Write(10);
  Write(20);
  fs::remove(folder_ + "/20/manifest.json");
  fs::create_directories(folder_ + "/.writing-30");
  fs::create_directories(folder_ + "/.removing-5/model.safetensors");
  fs::create_directories(folder_ + "/notes");
  ASSERT_TRUE(RemoveLeftovers(folder_).ok());
  EXPECT_THAT(NamesIn(folder_), UnorderedElementsAre("10", "notes"));
}

TEST_F(CheckpointFolderTest, AReplacedCheckpointComesBackWhenNothingCameInItsPlace) {
  Write(10);
  fs::rename(folder_ + "/10", folder_ + "/.replaced-10");
  fs::create_directories(folder_ + "/.writing-10");
  ASSERT_TRUE(RemoveLeftovers(folder_).ok());
  EXPECT_THAT(Listed(), ElementsAre(10));
  EXPECT_THAT(NamesIn(folder_), UnorderedElementsAre("10"));

  fs::copy(folder_ + "/10", folder_ + "/.replaced-10");
  ASSERT_TRUE(RemoveLeftovers(folder_).ok());
  EXPECT_THAT(NamesIn(folder_), UnorderedElementsAre("10"));
}

TEST_F(CheckpointFolderTest, RetentionRemovesFolders) {
  Write(10, 1.0);
  Write(20, 3.0);
  Write(30, 2.0);
  Write(40, 2.5);
  ASSERT_TRUE(ApplyRetention(folder_, {.keep_last = 1, .keep_best = 1}).ok());
  EXPECT_THAT(NamesIn(folder_), UnorderedElementsAre("10", "40"));
}

TEST_F(CheckpointFolderTest, GoesOnFromTheNewestThatIsIntactAndSaysWhichWasNot) {
  Write(10);
  Write(20);
  fs::resize_file(folder_ + "/20/model.safetensors", 100);
  const auto newest = NewestIntactCheckpoint(folder_, warn_);
  ASSERT_TRUE(newest.ok()) << newest.status();
  ASSERT_TRUE(newest->has_value());
  EXPECT_EQ((*newest)->step, 10);
  EXPECT_THAT(warnings_, ElementsAre(testing::AllOf(HasSubstr("/20/model.safetensors"),
                                                    HasSubstr("step 10"))));
}

TEST_F(CheckpointFolderTest, IsDataLossWhenAllAreDamaged) {
  Write(10);
  fs::resize_file(folder_ + "/10/optimizer_state.bin", 100);
  const auto newest = NewestIntactCheckpoint(folder_, warn_);
  EXPECT_EQ(newest.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(newest.status().message()), HasSubstr("/10/optimizer_state.bin"));
}

TEST_F(CheckpointFolderTest, AFolderUnderTheWrongStepIsNotTaken) {
  Write(10);
  fs::rename(folder_ + "/10", folder_ + "/11");
  EXPECT_THAT(Listed(), IsEmpty());
}

}  // namespace
}  // namespace millrace
