#include "engine/train/text_generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/state/load_weights.h"
#include "tests/engine/train/golden_model.h"

namespace millrace {
namespace {

using Tokens = std::vector<int32_t>;

constexpr int64_t kPlenty = int64_t{1} << 40;

// Token n is ` n`.
class NumberTokenizer : public Tokenizer {
 public:
  explicit NumberTokenizer(int64_t vocab_size) : vocab_size_(vocab_size) {}
  std::string name() const override { return "numbers"; }
  int64_t vocab_size() const override { return vocab_size_; }
  int32_t end_of_document() const override { return 0; }
  void Encode(absl::string_view, std::vector<int32_t>*) const override {}
  std::string Decode(absl::Span<const int32_t> tokens) const override {
    std::string text;
    for (int32_t token : tokens) absl::StrAppend(&text, " ", token);
    return text;
  }

 private:
  int64_t vocab_size_;
};

struct Outcome {
  Tokens tokens;
  std::string text;
  TextEnd end = TextEnd::kNone;
};

class TextGeneratorTest : public testing::Test {
 protected:
  TextGeneratorTest() {
    const GoldenModel golden("llama_gqa");
    model_.spec = *golden.spec();
    model_.spec.max_positions = 64;
    model_.tokenizer = std::make_unique<NumberTokenizer>(model_.spec.vocab_size);
    model_.pool = std::make_unique<ThreadPool>(2);
    model_.state =
        *HostState::CreateWeights(MakeSlabLayouts(model_.spec), DType::kF32, *model_.pool);
    EXPECT_TRUE(LoadWeights(model_.spec, golden.folder(), *model_.pool, model_.state.get()).ok());
    const auto json = nlohmann::json::parse(*ReadFile(golden.folder() + "/generation.json"));
    json.at("prompt").get_to(prompt_);
    json.at("tokens").get_to(expected_);
    options_.max_tokens = static_cast<int64_t>(expected_.size());
    options_.sampling.temperature = 0;
  }

  std::vector<Outcome> Generate(const std::vector<Tokens>& prompts) {
    std::vector<Outcome> outcomes(prompts.size());
    const auto figures =
        GenerateTexts(model_, prompts, options_, kPlenty, nullptr, [&](TextPiece piece) {
          Outcome& outcome = outcomes[piece.prompt];
          EXPECT_EQ(outcome.end, TextEnd::kNone);
          outcome.tokens.insert(outcome.tokens.end(), piece.tokens.begin(), piece.tokens.end());
          outcome.text += piece.text;
          outcome.end = piece.end;
          return absl::OkStatus();
        });
    EXPECT_TRUE(figures.ok()) << figures.status();
    return outcomes;
  }

  InferenceModel model_;
  GenerateOptions options_;
  Tokens prompt_, expected_;
};

TEST_F(TextGeneratorTest, GreedyTextIsThatOfTransformersHoweverManyThereAre) {
  // More than go on at a time, of different lengths.
  std::vector<Tokens> prompts;
  for (size_t i = 0; i < 40; ++i) {
    prompts.push_back(prompt_);
    if (i % 3 == 1) prompts.back().push_back(expected_[0]);
  }
  const std::vector<Outcome> outcomes = Generate(prompts);
  for (size_t i = 0; i < prompts.size(); ++i) {
    const size_t given = prompts[i].size() - prompt_.size();
    const Tokens begin(outcomes[i].tokens.begin(), outcomes[i].tokens.end() - given);
    EXPECT_EQ(begin, Tokens(expected_.begin() + given, expected_.end())) << i;
    EXPECT_EQ(outcomes[i].end, TextEnd::kLength);
    EXPECT_EQ(outcomes[i].text, model_.tokenizer->Decode(outcomes[i].tokens));
  }
}

TEST_F(TextGeneratorTest, EndsAtATokenThatEndsTextsUnlessToldToGoOn) {
  model_.ends = {expected_[7]};
  const auto at = std::find(expected_.begin(), expected_.end(), expected_[7]);
  const Outcome ended = Generate({prompt_})[0];
  EXPECT_EQ(ended.tokens, Tokens(expected_.begin(), at + 1));
  EXPECT_EQ(ended.text, model_.tokenizer->Decode(Tokens(expected_.begin(), at)));
  EXPECT_EQ(ended.end, TextEnd::kEnd);
  options_.ignore_end = true;
  EXPECT_EQ(Generate({prompt_})[0].tokens, expected_);
}

TEST_F(TextGeneratorTest, EndsBeforeAStopString) {
  options_.stop = {absl::StrCat(" ", expected_[7], " ", expected_[8])};
  const std::string whole = model_.tokenizer->Decode(expected_);
  const Outcome outcome = Generate({prompt_})[0];
  EXPECT_EQ(outcome.text, whole.substr(0, whole.find(options_.stop[0])));
  EXPECT_EQ(outcome.end, TextEnd::kStop);
}

TEST_F(TextGeneratorTest, TextsAreAFunctionOfSeedAndPrompt) {
  options_.sampling = {.temperature = 1.5, .top_k = 0};
  options_.seed = 7;
  const Tokens other = {1, 2, 3};
  const std::vector<Outcome> outcomes = Generate({other, prompt_, prompt_});
  // Whatever else is asked for.
  EXPECT_EQ(Generate({prompt_})[0].tokens, outcomes[1].tokens);
  // Not the same text twice.
  EXPECT_NE(outcomes[1].tokens, outcomes[2].tokens);
  options_.seed = 8;
  EXPECT_NE(Generate({prompt_})[0].tokens, outcomes[1].tokens);
}

TEST_F(TextGeneratorTest, ARepetitionPenaltyKeepsGreedyTextFromRepeating) {
  options_.sampling.repetition_penalty = 1000;
  const Outcome outcome = Generate({prompt_})[0];
  std::map<int32_t, int> counts;
  for (int32_t token : prompt_) ++counts[token];
  int repeated = 0;
  for (int32_t token : outcome.tokens) repeated += ++counts[token] > 1;
  // The vocabulary has 37 tokens, of which all but a few with positive logits can be new.
  EXPECT_LE(repeated, 2);
}

TEST_F(TextGeneratorTest, RefusesWhatDoesNotFitPositionsOrMemory) {
  const auto generate = [&](int64_t free_bytes) {
    return GenerateTexts(model_, {{prompt_}}, options_, free_bytes, nullptr,
                         [](TextPiece) { return absl::OkStatus(); })
        .status();
  };
  EXPECT_EQ(generate(1000).code(), absl::StatusCode::kResourceExhausted);
  options_.max_tokens = 64;
  const absl::Status status = generate(kPlenty);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "max_tokens: prompt 0")) << status;
}

TEST_F(TextGeneratorTest, EndsWithTheReader) {
  int pieces = 0;
  const auto figures = GenerateTexts(
      model_, {{prompt_}}, options_, kPlenty, nullptr,
      [&](TextPiece) { return ++pieces < 3 ? absl::OkStatus() : absl::CancelledError("gone"); });
  EXPECT_EQ(figures.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(pieces, 3);
}

}  // namespace
}  // namespace millrace
