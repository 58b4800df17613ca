#include "engine/train/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>

#include "engine/base/file.h"
#include "tests/engine/train/checkpoint_fixture.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

struct Kept {
  Recipe recipe;
  DType compute;
  OptimizerKind optimizer;
};

class CheckpointRoundTripTest : public testing::TestWithParam<std::tuple<Kept, bool>> {};

TEST_P(CheckpointRoundTripTest, RestoresWeightsAndMomentsBitForBit) {
  const auto& [kept, tied] = GetParam();
  const ModelSpec model = TinyLlama(tied);
  const auto saved = RandomState(model, kept.compute, 1, kept.recipe, kept.optimizer);
  const std::string folder = NewFolder();
  const auto written = WriteCheckpoint(folder, model, *saved, StateOfStep(40));
  ASSERT_TRUE(written.ok()) << written.status();

  const auto info = ReadManifest(folder + "/40");
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->step, 40);
  EXPECT_EQ(info->size_bytes, written->size_bytes);
  EXPECT_TRUE(VerifyHashes(*info).ok());
  const auto restored = RandomState(model, kept.compute, 2, kept.recipe, kept.optimizer);
  ASSERT_FALSE(BitwiseEqual(*saved, *restored));
  ThreadPool pool(2);
  const absl::Status status = ReadHostState(info->folder, model, pool, restored.get());
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(BitwiseEqual(*saved, *restored));
}

INSTANTIATE_TEST_SUITE_P(
    Recipes, CheckpointRoundTripTest,
    testing::Combine(testing::Values(Kept{Recipe::kFull, DType::kBF16, OptimizerKind::kAdamW},
                                     Kept{Recipe::kFull, DType::kF32, OptimizerKind::kAdamW},
                                     Kept{Recipe::kFp32, DType::kF32, OptimizerKind::kSgd},
                                     Kept{Recipe::kLean, DType::kBF16, OptimizerKind::kAdamW},
                                     Kept{Recipe::kLean, DType::kF32, OptimizerKind::kLion},
                                     Kept{Recipe::kTiny, DType::kBF16, OptimizerKind::kAdamW},
                                     Kept{Recipe::kTiny, DType::kBF16, OptimizerKind::kSgd}),
                     testing::Bool()),
    [](const auto& info) {
      const Kept& kept = std::get<0>(info.param);
      return std::string(NameOf(kept.recipe)) + "_" + std::string(NameOf(kept.compute)) + "_" +
             std::string(NameOf(kept.optimizer)) + (std::get<1>(info.param) ? "_tied" : "_untied");
    });

class CheckpointTest : public testing::Test {
 protected:
  absl::StatusOr<CheckpointInfo> Write(int64_t step) {
    return WriteCheckpoint(folder_, model_, *state_, StateOfStep(step));
  }

  const ModelSpec model_ = TinyLlama();
  const std::unique_ptr<HostState> state_ = RandomState(model_, DType::kBF16, 1);
  const std::string folder_ = NewFolder();
};

TEST_F(CheckpointTest, RestoresWhatTheTrainerIsAt) {
  TrainerState state = StateOfStep(40);
  state.evaluation_loss = 0.1 + 0.2;
  ASSERT_TRUE(WriteCheckpoint(folder_, model_, *state_, state).ok());
  const auto restored = ReadTrainerState(folder_ + "/40");
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(restored->step, state.step);
  EXPECT_EQ(restored->total_tokens, state.total_tokens);
  EXPECT_EQ(restored->cursor, state.cursor);
  EXPECT_EQ(restored->identity, state.identity);
  EXPECT_EQ(restored->evaluation_loss, state.evaluation_loss);
  EXPECT_EQ(ReadManifest(folder_ + "/40")->evaluation_loss, state.evaluation_loss);
}

TEST_F(CheckpointTest, ACancelledOneLeavesWhatWasThereBeforeAlone) {
  ASSERT_TRUE(Write(40).ok());
  const std::atomic<bool> cancelled = true;
  const auto result = WriteCheckpoint(folder_, model_, *RandomState(model_, DType::kBF16, 2),
                                      StateOfStep(40), &cancelled);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(NamesIn(folder_), testing::ElementsAre("40"));
  EXPECT_TRUE(VerifyHashes(*ReadManifest(folder_ + "/40")).ok());
}

TEST_F(CheckpointTest, IsAModelDirectory) {
  ASSERT_TRUE(Write(40).ok());
  const auto config = ReadModelDirectoryConfig(folder_ + "/40");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->hidden_size, model_.hidden_size);
}

TEST_F(CheckpointTest, LeavesNothingElseBehind) {
  ASSERT_TRUE(Write(40).ok());
  EXPECT_THAT(NamesIn(folder_), UnorderedElementsAre("40"));
  EXPECT_THAT(NamesIn(folder_ + "/40"),
              UnorderedElementsAre("config.json", "model.safetensors", "optimizer_state.bin",
                                   "trainer_state.json", "manifest.json"));
}

TEST_F(CheckpointTest, ReplacesOneOfTheSameStep) {
  ASSERT_TRUE(Write(40).ok());
  fs::resize_file(folder_ + "/40/optimizer_state.bin", 5);
  ASSERT_TRUE(Write(40).ok());
  EXPECT_TRUE(ReadManifest(folder_ + "/40").ok());
  EXPECT_THAT(NamesIn(folder_), UnorderedElementsAre("40"));
}

TEST_F(CheckpointTest, OverwritesWhatAnInterruptedWriteLeft) {
  fs::create_directories(folder_ + "/.writing-40/model.safetensors");
  ASSERT_TRUE(Write(40).ok());
  EXPECT_THAT(NamesIn(folder_), UnorderedElementsAre("40"));
}

TEST_F(CheckpointTest, WithoutManifestIsNotThere) {
  ASSERT_TRUE(Write(40).ok());
  fs::remove(folder_ + "/40/manifest.json");
  EXPECT_EQ(ReadManifest(folder_ + "/40").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CheckpointTest, OfALaterFormatIsRefusedByName) {
  ASSERT_TRUE(Write(40).ok());
  ASSERT_TRUE(WriteFileAtomically(folder_ + "/40/manifest.json", "{\"format\": 2}").ok());
  const absl::Status status = ReadManifest(folder_ + "/40").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("has format 2"));
}

TEST_F(CheckpointTest, OptimizerStateOfAnotherModelIsRefused) {
  ASSERT_TRUE(Write(40).ok());
  const auto other = RandomState(model_, DType::kF32, 1);
  ThreadPool pool(2);
  const absl::Status status = ReadHostState(folder_ + "/40", model_, pool, other.get());
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
}

TEST_F(CheckpointTest, CannotBeWrittenWhereThereIsNoFolder) {
  std::ofstream(folder_ + "/file") << "x";
  const auto info = WriteCheckpoint(folder_ + "/file", model_, *state_, StateOfStep(1));
  EXPECT_FALSE(info.ok());
}

// What damages a file, in words and deeds.
struct Damage {
  std::string name;
  void (*apply)(const std::string& path);
};

void Truncate(const std::string& path) { fs::resize_file(path, fs::file_size(path) / 2); }
void Remove(const std::string& path) { fs::remove(path); }
void Lengthen(const std::string& path) { std::ofstream(path, std::ios::app) << "x"; }
void FlipOneBit(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto place = static_cast<std::streamoff>(fs::file_size(path) / 2);
  file.seekg(place);
  const char byte = static_cast<char>(file.get() ^ 1);
  file.seekp(place);
  file.put(byte);
}

class DamagedCheckpointTest : public testing::TestWithParam<std::tuple<std::string, Damage>> {};

TEST_P(DamagedCheckpointTest, IsFoundOutAndNamesTheFile) {
  const auto& [file, damage] = GetParam();
  const ModelSpec model = TinyLlama();
  const std::string folder = NewFolder();
  const auto state = RandomState(model, DType::kBF16, 1);
  ASSERT_TRUE(WriteCheckpoint(folder, model, *state, StateOfStep(40)).ok());
  const std::string path = folder + "/40/" + file;
  damage.apply(path);

  const auto info = ReadManifest(folder + "/40");
  const absl::Status status = info.ok() ? VerifyHashes(*info) : info.status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
}

INSTANTIATE_TEST_SUITE_P(
    Files, DamagedCheckpointTest,
    testing::Combine(testing::Values("config.json", "model.safetensors", "optimizer_state.bin",
                                     "trainer_state.json"),
                     testing::Values(Damage{"truncated", Truncate}, Damage{"removed", Remove},
                                     Damage{"lengthened", Lengthen},
                                     Damage{"flipped", FlipOneBit})),
    [](const auto& info) {
      const std::string file = std::get<0>(info.param);
      return file.substr(0, file.find('.')) + "_" + std::get<1>(info.param).name;
    });

TEST(DamagedManifestTest, IsNotComplete) {
  const ModelSpec model = TinyLlama();
  const std::string folder = NewFolder();
  const auto state = RandomState(model, DType::kBF16, 1);
  ASSERT_TRUE(WriteCheckpoint(folder, model, *state, StateOfStep(40)).ok());
  Truncate(folder + "/40/manifest.json");
  EXPECT_EQ(ReadManifest(folder + "/40").status().code(), absl::StatusCode::kDataLoss);
  for (const char* text : {"", "[]", "{\"format\": 1}", "{\"format\": 1, \"step\": \"x\"}"}) {
    ASSERT_TRUE(WriteFileAtomically(folder + "/40/manifest.json", text).ok());
    EXPECT_FALSE(ReadManifest(folder + "/40").ok()) << text;
  }
}

}  // namespace
}  // namespace millrace
