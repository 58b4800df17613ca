#include "engine/data/bpe_trainer.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/data/tokenizer_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/engine/data/text_files.h"

namespace millrace {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::Status GoOn(const BpeTrainerProgress&) { return absl::OkStatus(); }

json Train(const std::string& dataset, const BpeTrainerOptions& options) {
  const auto trained = TrainBpe(dataset, options, GoOn);
  EXPECT_TRUE(trained.ok()) << trained.status();
  return trained.ok() ? json::parse(trained->tokenizer_json) : json();
}

TEST(BpeTrainer, MakesTheMergesOfHuggingFace) {
  const std::string folder = "tests/golden/tokenizer_trained";
  const json expected = json::parse(ReadFile(folder + "/tokenizer.json").value());
  for (int threads : {1, 3}) {
    const json file = Train(
        folder + "/corpus.jsonl",
        {.vocab_size = 900, .special_tokens = {"<|endoftext|>", "<|pad|>"}, .threads = threads});
    EXPECT_EQ(file["model"]["merges"], expected["model"]["merges"]);
    EXPECT_EQ(file["model"]["vocab"], expected["model"]["vocab"]);
    EXPECT_EQ(file["added_tokens"], expected["added_tokens"]);
    EXPECT_EQ(file["pre_tokenizer"], expected["pre_tokenizer"]);
    EXPECT_EQ(file["decoder"], expected["decoder"]);
  }
}

TEST(BpeTrainer, WritesATokenizerThatIsRead) {
  const std::string folder = EmptyFolder();
  const std::string dataset = WriteText(folder + "/data.txt", "low lower lowest low low\n");
  const auto trained = TrainBpe(dataset, {.vocab_size = 260}, GoOn);
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_EQ(trained->vocab_size, 260);
  EXPECT_EQ(trained->words, 5);
  ASSERT_TRUE(WriteTokenizer(*trained, folder + "/tokenizer").ok());
  const auto tokenizer = LoadTokenizer(folder + "/tokenizer");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->vocab_size(), 260);
  EXPECT_EQ((*tokenizer)->end_of_document(), 0);
  std::vector<int32_t> tokens;
  (*tokenizer)->Encode("low low", &tokens);
  EXPECT_THAT(tokens, ElementsAre(258, 259));
  EXPECT_EQ((*tokenizer)->Decode(tokens), "low low");
}

TEST(BpeTrainer, StopsWherePairsAreTooRare) {
  const std::string dataset = WriteText(EmptyFolder() + "/data.txt", "ab ab ab cd cd e");
  EXPECT_EQ(Train(dataset, {.vocab_size = 1000, .min_frequency = 3})["model"]["merges"],
            json::parse(R"([["a", "b"]])"));
  EXPECT_EQ(Train(dataset, {.vocab_size = 1000, .min_frequency = 2})["model"]["merges"].size(), 4);
}

TEST(BpeTrainer, CutsLongDocumentsWhereNoWordGoesAcross) {
  // Several pieces of a reader, with words that would be cut anywhere.
  std::string unit, text;
  for (int i = 0; i < 70; ++i) absl::StrAppend(&unit, "naïve-", i % 7, "'ll  x\n ");
  while (text.size() < (3 << 20)) text += unit;
  const std::string folder = EmptyFolder();
  const std::string whole = WriteText(folder + "/whole.txt", text);
  json documents = {{"text", text}};
  const std::string line = WriteText(folder + "/line.jsonl", documents.dump() + "\n");
  const auto count = [](const std::string& dataset) {
    return TrainBpe(dataset, {.vocab_size = 300, .threads = 2}, GoOn).value().words;
  };
  EXPECT_EQ(count(whole), count(WriteText(folder + "/begin.txt", unit)));
  EXPECT_EQ(Train(whole, {.vocab_size = 300}), Train(line, {.vocab_size = 300}));
}

TEST(BpeTrainer, HoldsNoMoreWordsThanItMay) {
  std::string text;
  for (int i = 0; i < 3000; ++i) absl::StrAppend(&text, "w", i, " ");
  for (int i = 0; i < 500; ++i) absl::StrAppend(&text, "often ");
  const std::string dataset = WriteText(EmptyFolder() + "/data.txt", text);
  const auto trained = TrainBpe(dataset, {.vocab_size = 261, .most_words = 1000}, GoOn);
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_EQ(trained->dropped_up_to, 1);
  EXPECT_LT(trained->words, 1000);
}

TEST(BpeTrainer, TellsHowFarItIsAndStopsWhenAsked) {
  const std::string dataset = WriteText(EmptyFolder() + "/data.txt", "some text, some more text");
  bool read = false;
  const auto trained =
      TrainBpe(dataset, {.vocab_size = 300}, [&](const BpeTrainerProgress& progress) {
        if (progress.phase == BpeTrainerProgress::Phase::kReading)
          read = progress.done == progress.total;
        return absl::OkStatus();
      });
  EXPECT_TRUE(trained.ok()) << trained.status();
  EXPECT_TRUE(read);
  const auto stopped = TrainBpe(dataset, {.vocab_size = 300}, [](const BpeTrainerProgress&) {
    return absl::CancelledError("enough");
  });
  EXPECT_TRUE(absl::IsCancelled(stopped.status())) << stopped.status();
}

TEST(BpeTrainer, NamesTheOptionThatIsWrong) {
  const std::string dataset = WriteText(EmptyFolder() + "/data.txt", "text");
  const auto refusal = [&](const BpeTrainerOptions& options) {
    const absl::Status status = TrainBpe(dataset, options, GoOn).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal({.vocab_size = 256}),
              HasSubstr("vocab_size: 256 must be 257 (the 256 bytes and the special tokens)"));
  EXPECT_EQ(refusal({.vocab_size = 300, .split = "words"}),
            "split: \"words\" is not known; choose one of: gpt2, llama3");
  EXPECT_EQ(refusal({.vocab_size = 300, .special_tokens = {}}),
            "special_tokens: are none; name one that ends documents");
  EXPECT_EQ(refusal({.vocab_size = 300, .special_tokens = {"<a>", "<a>"}}),
            "special_tokens: \"<a>\" is there twice");
}

}  // namespace
}  // namespace millrace
