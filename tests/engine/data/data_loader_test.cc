#include "engine/data/data_loader.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/data/packing.h"
#include "engine/data/tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/data/text_files.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kLength = 8;  // of a sequence

// A token for each four digits.
class NumberTokenizer : public Tokenizer {
 public:
  std::string name() const override { return "number"; }
  int64_t vocab_size() const override { return 10001; }
  int32_t end_of_document() const override { return 10000; }
  void Encode(absl::string_view text, std::vector<int32_t>* tokens) const override {
    for (size_t i = 0; i + 4 <= text.size(); i += 4) {
      tokens->push_back(std::stoi(std::string(text.substr(i, 4))));
    }
  }
  std::string Decode(absl::Span<const int32_t>) const override { return ""; }
};

// Everything that is read or predicted in `batches`.
std::set<int32_t> TokensOf(const std::vector<MicroBatch>& batches) {
  std::set<int32_t> tokens;
  for (const MicroBatch& batch : batches) {
    tokens.insert(batch.inputs.begin(), batch.inputs.end());
    tokens.insert(batch.targets.begin(), batch.targets.end());
  }
  return tokens;
}

class DataLoaderTest : public ::testing::Test {
 protected:
  // A store of these documents.
  const TokenStore& Store(const std::vector<std::string>& documents) {
    return Store(documents, **MakeTokenizer("byte"));
  }
  const TokenStore& Store(const std::vector<std::string>& documents, const Tokenizer& tokenizer) {
    const std::string folder = EmptyFolder();
    for (size_t i = 0; i < documents.size(); ++i) {
      WriteText(folder + "/data/" + std::to_string(100 + i), documents[i]);
    }
    absl::StatusOr<TokenStore> store =
        TokenStore::Prepare(folder + "/data", tokenizer, folder + "/prepared",
                            [](int64_t, int64_t) { return absl::OkStatus(); });
    EXPECT_TRUE(store.ok()) << store.status();
    store_.emplace(*std::move(store));
    return *store_;
  }

  // `sequences` windows of sequence_length + 1 = 9 tokens; every window has a number of its own,
  // which is its first two bytes.
  const TokenStore& NumberedStore(int sequences) {
    std::string text;
    for (int i = 0; i < sequences; ++i) {
      text += {static_cast<char>('A' + i / 26), static_cast<char>('a' + i % 26)};
      text += "-------";
    }
    return Store({text});
  }

  static int NumberOf(const MicroBatch& batch, int64_t sequence) {
    return (batch.inputs[kLength * sequence] - 'A') * 26 + batch.inputs[kLength * sequence + 1] -
           'a';
  }
  static std::vector<int> NumbersOf(const std::vector<MicroBatch>& batches) {
    std::vector<int> numbers;
    for (const MicroBatch& batch : batches) {
      for (int64_t i = 0; i < batch.tokens() / kLength; ++i) numbers.push_back(NumberOf(batch, i));
    }
    return numbers;
  }

  static DataLoader Loader(const TokenStore& store, double eval_fraction, uint64_t seed) {
    absl::StatusOr<DataLoader> loader = DataLoader::Create(
        store, {.sequence_length = kLength, .eval_fraction = eval_fraction, .seed = seed});
    EXPECT_TRUE(loader.ok()) << loader.status();
    return *std::move(loader);
  }

  std::optional<TokenStore> store_;
};

TEST_F(DataLoaderTest, TargetsAreTheNextTokensOfTheSameDocument) {
  // Stream: a b c END d END e f g h END; windows of 5: [a b c END d] [END e f g h].
  const Packing packing(Store({"abc", "d", "efgh"}), 4);
  ASSERT_EQ(packing.sequences(), 2);
  MicroBatch batch;
  packing.Append(0, &batch);
  EXPECT_THAT(batch.inputs, ElementsAre('a', 'b', 'c', 256));
  EXPECT_THAT(batch.targets, ElementsAre('b', 'c', 256, -1));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(batch.boundaries, ElementsAre(0, 4));
  EXPECT_EQ(batch.target_count, 3);
  packing.Append(1, &batch);
  EXPECT_THAT(batch.inputs, ElementsAre('a', 'b', 'c', 256, 256, 'e', 'f', 'g'));
  EXPECT_THAT(batch.targets, ElementsAre('b', 'c', 256, -1, -1, 'f', 'g', 'h'));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 3, 0, 0, 1, 2));
  EXPECT_THAT(batch.boundaries, ElementsAre(0, 4, 5, 8));
  EXPECT_EQ(batch.target_count, 6);
  EXPECT_EQ(batch.longest_document(), 4);
}

TEST_F(DataLoaderTest, ADocumentThatGoesOnInTheNextSequenceBeginsAnewThere) {
  const Packing packing(Store({"abcdefghij"}), 3);
  MicroBatch batch;
  packing.Append(0, &batch);
  packing.Append(1, &batch);
  EXPECT_THAT(batch.inputs, ElementsAre('a', 'b', 'c', 'e', 'f', 'g'));
  EXPECT_THAT(batch.targets, ElementsAre('b', 'c', 'd', 'f', 'g', 'h'));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_THAT(batch.boundaries, ElementsAre(0, 3, 6));
}

TEST_F(DataLoaderTest, InvariantsOfPackingHoldForAnyDocuments) {
  std::vector<std::string> documents;
  for (int i = 0; i < 60; ++i) documents.push_back(std::string(1 + i * i % 37, 'a' + i % 26));
  const TokenStore& store = Store(documents);
  for (int64_t length : {2, 3, 8, 31, 100}) {
    const Packing packing(store, length);
    MicroBatch batch;
    for (int64_t i = 0; i < packing.sequences(); ++i) packing.Append(i, &batch);
    ASSERT_EQ(batch.tokens(), packing.sequences() * length);
    EXPECT_EQ(batch.boundaries.front(), 0);
    EXPECT_EQ(batch.boundaries.back(), batch.tokens());
    EXPECT_GE(batch.target_count, packing.sequences());
    std::set<int32_t> begins(batch.boundaries.begin(), batch.boundaries.end());
    for (int64_t t = 0; t < batch.tokens(); ++t) {
      EXPECT_EQ(batch.targets[t] == -1, batch.inputs[t] == 256);
      EXPECT_EQ(batch.positions[t] == 0, begins.count(t) > 0);
      // Within a document all bytes are the same here.
      if (batch.targets[t] >= 0 && batch.targets[t] < 256) {
        EXPECT_EQ(batch.targets[t], batch.inputs[t]);
      }
    }
  }
}

TEST_F(DataLoaderTest, AnEpochHasEachTrainingSequenceOnceAndNoEvaluationSequence) {
  DataLoader loader = Loader(NumberedStore(200), 0.1, 5);
  ASSERT_EQ(loader.train_sequences(), 180);
  const std::vector<int> evaluated = NumbersOf(loader.EvaluationBatches(32, 1000));
  EXPECT_EQ(evaluated.size(), 20);
  std::vector<std::vector<int>> epochs;
  for (int epoch = 0; epoch < 3; ++epoch) {
    epochs.push_back(NumbersOf(loader.NextStep(180 * kLength, 60 * kLength)));
    EXPECT_EQ(loader.cursor(), (DataCursor{epoch + 1, 0}));
    std::set<int> seen(epochs.back().begin(), epochs.back().end());
    EXPECT_EQ(seen.size(), 180);
    for (int number : evaluated) EXPECT_EQ(seen.count(number), 0);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
}

TEST_F(DataLoaderTest, NoTokenOfTheEvaluationSplitIsEverTrainedOn) {
  std::string text;
  for (int i = 1000; i < 3000; ++i) text += std::to_string(i);
  DataLoader loader = Loader(Store({text}, NumberTokenizer()), 0.3, 1);
  const std::set<int32_t> train = TokensOf(loader.NextStep(loader.train_sequences() * kLength, 8));
  const std::set<int32_t> eval = TokensOf(loader.EvaluationBatches(8, 1000));
  EXPECT_EQ(train.size(), loader.train_sequences() * 9);
  EXPECT_EQ(eval.size(), loader.eval_sequences() * 9);
  for (int32_t token : eval) EXPECT_EQ(train.count(token), 0) << token;
}

TEST_F(DataLoaderTest, ResumesExactlyAtAnyPoint) {
  const TokenStore& store = NumberedStore(53);
  DataLoader whole = Loader(store, 0.1, 3);
  std::vector<std::vector<int>> steps;
  std::vector<DataCursor> cursors;
  for (int step = 0; step < 40; ++step) {
    cursors.push_back(whole.cursor());
    steps.push_back(NumbersOf(whole.NextStep(7 * kLength, 8)));
  }
  for (int step = 0; step < 40; ++step) {
    DataLoader resumed = Loader(store, 0.1, 3);
    ASSERT_TRUE(resumed.Seek(cursors[step]).ok());
    for (int next = step; next < std::min(step + 10, 40); ++next) {
      EXPECT_EQ(NumbersOf(resumed.NextStep(7 * kLength, 8)), steps[next]);
    }
  }
}

TEST_F(DataLoaderTest, AStepIsTheSameHoweverItIsDividedIntoMicroBatches) {
  const TokenStore& store = NumberedStore(53);
  DataLoader one = Loader(store, 0.1, 3), many = Loader(store, 0.1, 3);
  const std::vector<MicroBatch> whole = one.NextStep(12 * kLength, 12 * kLength);
  const std::vector<MicroBatch> parts = many.NextStep(12 * kLength, 3 * kLength);
  ASSERT_EQ(whole.size(), 1);
  ASSERT_EQ(parts.size(), 4);
  EXPECT_EQ(NumbersOf(whole), NumbersOf(parts));
  EXPECT_EQ(CountTargets(whole), CountTargets(parts));
  EXPECT_EQ(CountTargets(whole), whole[0].target_count);
}

TEST_F(DataLoaderTest, TheOrderDependsOnTheSeedAndEvaluationDoesNot) {
  const TokenStore& store = NumberedStore(100);
  DataLoader a = Loader(store, 0.1, 1), b = Loader(store, 0.1, 2);
  EXPECT_NE(NumbersOf(a.NextStep(80, 80)), NumbersOf(b.NextStep(80, 80)));
  EXPECT_EQ(NumbersOf(a.EvaluationBatches(80, 100)), NumbersOf(b.EvaluationBatches(80, 100)));
}

TEST_F(DataLoaderTest, EvaluationTakesASpreadOfAtMostSoManySequences) {
  DataLoader loader = Loader(NumberedStore(200), 0.1, 5);
  const std::vector<MicroBatch> batches = loader.EvaluationBatches(3 * kLength, 5);
  ASSERT_EQ(batches.size(), 2);
  EXPECT_EQ(batches[0].tokens(), 24);
  EXPECT_EQ(batches[1].tokens(), 16);
  EXPECT_THAT(NumbersOf(batches), ElementsAre(5, 45, 85, 125, 165));
  EXPECT_TRUE(Loader(*store_, 0.0, 5).EvaluationBatches(8, 5).empty());
}

TEST_F(DataLoaderTest, MoreSequencesAStepThanThereAreGoesRoundAgain) {
  DataLoader loader = Loader(NumberedStore(5), 0.0, 5);
  const std::vector<int> numbers = NumbersOf(loader.NextStep(12 * kLength, 4 * kLength));
  EXPECT_EQ(loader.cursor(), (DataCursor{2, 2}));
  std::map<int, int> counts;
  for (int number : numbers) ++counts[number];
  for (const auto& [number, count] : counts) EXPECT_TRUE(count == 2 || count == 3) << number;
}

TEST_F(DataLoaderTest, TooShortATextIsAnErrorWithTheNumbersAndTheFix) {
  const TokenStore& store = Store({std::string(100, 'a')});
  auto error = [&](int64_t length, double fraction) {
    const absl::Status status =
        DataLoader::Create(store, {.sequence_length = length, .eval_fraction = fraction}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << length;
    return std::string(status.message());
  };
  EXPECT_EQ(error(64, 0.02),
            "data.train: the dataset has 101 tokens, less than the 130 that one sequence for "
            "training and one for evaluation need (data.sequence_length 64, plus the token that "
            "follows); add text, or lower data.sequence_length to at most 49, or set "
            "data.eval_fraction to 0");
  EXPECT_EQ(error(101, 0),
            "data.train: the dataset has 101 tokens, less than the 102 that one sequence needs "
            "(data.sequence_length 101, plus the token that follows); add text, or lower "
            "data.sequence_length to at most 100");
  EXPECT_TRUE(DataLoader::Create(store, {.sequence_length = 100, .eval_fraction = 0}).ok());
  EXPECT_TRUE(DataLoader::Create(store, {.sequence_length = 49, .eval_fraction = 0.01}).ok());
  EXPECT_THAT(error(1, 0), HasSubstr("data.sequence_length: 1 is too short"));
  EXPECT_THAT(error(8, 0.6), HasSubstr("data.eval_fraction: 0.6 is out of range"));
}

TEST_F(DataLoaderTest, SeekingOutsideOfTheDataIsAnError) {
  DataLoader loader = Loader(NumberedStore(10), 0.0, 5);
  EXPECT_FALSE(loader.Seek({0, 10}).ok());
  EXPECT_FALSE(loader.Seek({-1, 0}).ok());
  EXPECT_FALSE(loader.Seek({0, -1}).ok());
  EXPECT_TRUE(loader.Seek({3, 9}).ok());
}

}  // namespace
}  // namespace millrace
