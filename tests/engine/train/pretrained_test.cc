// Runs that begin with the weights of a model on disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "engine/base/file.h"
#include "engine/model/gguf_export.h"
#include "engine/model/model_directory.h"
#include "engine/train/checkpoint.h"
#include "engine/train/failure.h"
#include "engine/train/job_tokenizer.h"
#include "engine/train/run_setup.h"
#include "engine/train/trainer.h"
#include "tests/engine/train/training_fixture.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Outcome = TrainResult::Outcome;

class PretrainedTest : public testing::Test {
 protected:
  // The checkpoint of a run from scratch, with a vocabulary padded to 260.
  static void SetUpTestSuite() {
    text_ = new std::string(WriteText(NewJobFolder()));
    TrainSpec spec = SmallJob(*text_);
    spec.model_config_json.pop_back();
    spec.model_config_json += R"(, "vocab_size": 260})";
    spec.recipe = Recipe::kFp32;
    const std::string folder = NewJobFolder();
    RecordingObserver observer;
    StopControl stop;
    const auto result = Train(spec, folder, observer, stop);
    ASSERT_TRUE(result.ok()) << result.status();
    model_ = new std::string(folder + "/checkpoints/12");
    loss_ = observer.steps.back().loss;
  }

  static TrainSpec From(const std::string& path) {
    TrainSpec spec = SmallJob(*text_);
    spec.model_config_json.clear();
    spec.model_from = spec.model_path = path;
    spec.recipe = Recipe::kFp32;
    return spec;
  }

  absl::Status Run(const TrainSpec& spec, const std::string& folder, int64_t end_after = 0) {
    StopControl stop;
    observer_ = RecordingObserver();
    observer_.on_step = [&](int64_t step) {
      if (step == end_after) stop.RequestStop("PAUSE");
    };
    return Train(spec, folder, observer_, stop).status();
  }

  // All weights that a run begins with, unit after unit.
  std::vector<float> Weights(const TrainSpec& spec) {
    StopControl stop;
    std::vector<float> weights;
    const auto run = PrepareRun(spec, NewJobFolder(), observer_, stop);
    EXPECT_TRUE(run.ok()) << run.status();
    if (!run.ok()) return weights;
    for (int unit = 0; unit < (*run)->state->num_units(); ++unit) {
      const size_t begin = weights.size();
      weights.resize(begin + static_cast<size_t>((*run)->state->count(unit)));
      (*run)->state->ReadMaster(unit, 0, absl::MakeSpan(weights).subspan(begin));
    }
    return weights;
  }

  static std::vector<std::string> FilesOf(const std::string& checkpoint) {
    std::vector<std::string> files;
    const auto info = ReadManifest(checkpoint);
    EXPECT_TRUE(info.ok()) << info.status();
    if (!info.ok()) return files;
    for (const WrittenFile& file : info->files) files.push_back(file.name + " " + file.sha256);
    return files;
  }

  static std::string* text_;
  static std::string* model_;
  static double loss_;
  RecordingObserver observer_;
};

std::string* PretrainedTest::text_ = nullptr;
std::string* PretrainedTest::model_ = nullptr;
double PretrainedTest::loss_ = 0;

TEST_F(PretrainedTest, BeginsWithTheWeightsOfTheModelAndStepZero) {
  ASSERT_TRUE(Run(From(*model_), NewJobFolder()).ok());
  EXPECT_EQ(observer_.start_step, 0);
  ASSERT_EQ(observer_.steps.size(), 12u);
  // Where the model had been trained to, not ln(260) = 5.6 of a random one.
  EXPECT_LT(observer_.steps[0].loss, loss_ + 0.5);
  EXPECT_LT(observer_.steps[0].loss, 5);
}

TEST_F(PretrainedTest, ACheckpointsConfigSaysWhichTokenEndsTexts) {
  EXPECT_THAT(*ReadFile(*model_ + "/config.json"),
              AllOf(HasSubstr("\"eos_token_id\": 256"), HasSubstr("\"bos_token_id\": 256")));
}

TEST_F(PretrainedTest, AGgufFileGivesTheSameWeights) {
  const auto model = ReadModelDirectoryConfig(*model_);
  ASSERT_TRUE(model.ok()) << model.status();
  const std::vector<SlabLayout> layouts = MakeSlabLayouts(*model);
  std::vector<std::vector<float>> slabs;
  for (const SlabLayout& layout : layouts) slabs.emplace_back(layout.count);
  ASSERT_TRUE(ReadModelDirectory(*model, layouts, *model_,
                                 [&](int64_t unit, int64_t offset, absl::Span<const float> values) {
                                   std::copy(values.begin(), values.end(),
                                             slabs[unit].begin() + offset);
                                   return absl::OkStatus();
                                 })
                  .ok());
  const std::string path = NewJobFolder() + "/model.gguf";
  const auto written =
      WriteGguf(*model, layouts,
                [&](int64_t unit, int64_t offset, absl::Span<float> out) {
                  std::copy_n(slabs[unit].begin() + offset, out.size(), out.begin());
                  return absl::OkStatus();
                },
                path, {.type = GgmlType::kF32});
  ASSERT_TRUE(written.ok()) << written.status();
  TrainSpec spec = From(path);
  spec.tokenizer = "byte";
  const std::vector<float> weights = Weights(spec);
  EXPECT_FALSE(weights.empty());
  EXPECT_EQ(weights, Weights(From(*model_)));
}

TEST_F(PretrainedTest, NeedsItsSourceNoMoreOnceACheckpointIsThere) {
  const std::string source = NewJobFolder() + "/model";
  fs::copy(*model_, source);
  const std::string whole = NewJobFolder(), folder = NewJobFolder();
  const TrainSpec spec = From(source);
  ASSERT_TRUE(Run(spec, whole).ok());
  ASSERT_TRUE(Run(spec, folder, 5).ok());
  fs::remove_all(source);
  const absl::Status resumed = Run(spec, folder);
  ASSERT_TRUE(resumed.ok()) << resumed;
  EXPECT_EQ(observer_.start_step, 5);
  EXPECT_EQ(FilesOf(folder + "/checkpoints/12"), FilesOf(whole + "/checkpoints/12"));
}

TEST_F(PretrainedTest, ASourceThatIsGoneBeforeThatIsNamed) {
  const std::string gone = NewJobFolder() + "/gone";
  const absl::Status status = Run(From(gone), NewJobFolder());
  EXPECT_EQ(FailureReasonOf(status), FailureReason::kInvalid);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("model.from"), HasSubstr(gone)));
}

TEST_F(PretrainedTest, AnotherSourceIsAnotherRun) {
  const std::string folder = NewJobFolder(), other = NewJobFolder() + "/other";
  fs::copy(*model_, other);
  ASSERT_TRUE(Run(From(*model_), folder, 4).ok());
  EXPECT_THAT(std::string(Run(From(other), folder).message()),
              AllOf(HasSubstr("model.from"), HasSubstr(other)));
}

TEST_F(PretrainedTest, CheckpointsRememberTheWeightsThatItBeganWith) {
  const std::string folder = NewJobFolder(), again = NewJobFolder();
  ASSERT_TRUE(Run(From(*model_), folder, 1).ok());
  ASSERT_TRUE(Run(From(*model_), again, 2).ok());
  const auto first = ReadTrainerState(folder + "/checkpoints/1");
  const auto second = ReadTrainerState(again + "/checkpoints/2");
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->identity.at(kWeightsField).size(), 64u);
  EXPECT_EQ(first->identity.at(kWeightsField), second->identity.at(kWeightsField));
}

TEST_F(PretrainedTest, ATokenizerWithMoreTokensThanTheModelIsRefused) {
  const std::string narrow = NewJobFolder() + "/narrow";
  fs::copy(*model_, narrow);
  auto config = ReadFile(narrow + "/config.json");
  ASSERT_TRUE(config.ok());
  config->replace(config->find("260"), 3, "256");
  ASSERT_TRUE(WriteFileAtomically(narrow + "/config.json", *config).ok());
  const absl::Status status = Run(From(narrow), NewJobFolder());
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("tokenizer"), HasSubstr("257"), HasSubstr("256")));
}

TEST_F(PretrainedTest, SequencesLongerThanTheContextAreRefused) {
  TrainSpec spec = From(*model_);
  spec.sequence_length = 128;
  spec.tokens_per_micro_batch = 128;
  EXPECT_THAT(std::string(Run(spec, NewJobFolder()).message()),
              AllOf(HasSubstr("data.sequence_length"), HasSubstr("64")));
}

TEST_F(PretrainedTest, AModelWithoutATokenizerNeedsOneNamed) {
  const std::string bare = NewJobFolder() + "/bare";
  fs::create_directory(bare);
  fs::copy(*model_ + "/config.json", bare + "/config.json");
  fs::copy(*model_ + "/model.safetensors", bare + "/model.safetensors");
  TrainSpec spec = From(bare);
  EXPECT_THAT(std::string(Run(spec, NewJobFolder()).message()),
              AllOf(HasSubstr("model.from"), HasSubstr("tokenizer")));
  spec.tokenizer = "byte";
  const absl::Status status = Run(spec, NewJobFolder(), 1);
  EXPECT_TRUE(status.ok()) << status;
}

TEST(JobTokenizer, TheFileOfBytesGivesTheSameTokens) {
  TrainSpec spec;
  const std::string folder = NewJobFolder() + "/tokenizer";
  ASSERT_TRUE(KeepTokenizer(spec, "", folder).ok());
  spec.tokenizer = "kept";
  spec.tokenizer_path = folder;
  const auto from_file = MakeJobTokenizer(spec);
  ASSERT_TRUE(from_file.ok()) << from_file.status();
  const auto bytes = MakeTokenizer("byte");
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ((*from_file)->vocab_size(), (*bytes)->vocab_size());
  EXPECT_EQ((*from_file)->end_of_document(), (*bytes)->end_of_document());
  std::string text = "Mühle, 水車\n\t 🌊 0123";
  for (char c = 1; c < 127; ++c) text.push_back(c);
  std::vector<int32_t> expected, tokens;
  (*bytes)->Encode(text, &expected);
  (*from_file)->Encode(text, &tokens);
  EXPECT_EQ(tokens, expected);
  EXPECT_EQ((*from_file)->Decode(tokens), text);
}

}  // namespace
}  // namespace millrace
