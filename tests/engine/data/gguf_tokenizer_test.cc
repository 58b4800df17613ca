#include "engine/data/gguf_tokenizer.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "engine/base/file.h"
#include "engine/data/tokenizer_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kLlama3[] = "tests/golden/tokenizer_llama3";
constexpr char kSentencePiece[] = "tests/golden/tokenizer_sentencepiece_bpe";

std::vector<int32_t> Encode(const Tokenizer& tokenizer, absl::string_view text) {
  std::vector<int32_t> tokens;
  tokenizer.Encode(text, &tokens);
  return tokens;
}

// A byte-level tokenizer that GGUF can hold.
json ByteLevelFile() {
  json file = json::parse(ReadFile(std::string(kLlama3) + "/tokenizer.json").value());
  file["normalizer"] = nullptr;
  return file;
}

std::unique_ptr<Tokenizer> Make(const GgufTokenizer& gguf) {
  const auto files = FilesOfGgufTokenizer(gguf);
  EXPECT_TRUE(files.ok()) << files.status();
  auto tokenizer = ParseTokenizer(files->tokenizer_json, "", files->end);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

// Calls check(text, ids) with those of a golden folder's strings that are no special tokens and
// have none of users, which are ids 4 to 6.
void ForPlainTexts(
    const std::string& folder,
    const std::function<void(const std::string&, const std::vector<int32_t>&)>& check) {
  int count = 0;
  for (const json& one : json::parse(ReadFile(folder + "/cases.json").value())) {
    const std::string text = absl::HexStringToBytes(one["bytes"].get<std::string>());
    const auto ids = one["ids"].get<std::vector<int32_t>>();
    const auto of_user = [](int32_t id) { return id < 7; };
    if (absl::StrContains(text, "<") || std::any_of(ids.begin(), ids.end(), of_user)) continue;
    check(text, ids);
    ++count;
  }
  EXPECT_GT(count, 30);
}

TEST(GgufTokenizer, AByteLevelOneComesBackAsItWas) {
  const json file = ByteLevelFile();
  const auto gguf = GgufTokenizerOf(
      file.dump(), R"({"eos_token": "<|end_of_text|>", "bos_token": "<|begin_of_text|>"})", 422);
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  EXPECT_EQ(gguf->model, "gpt2");
  EXPECT_EQ(gguf->pre, "llama-bpe");
  EXPECT_EQ(gguf->tokens.size(), 422);
  EXPECT_EQ(gguf->tokens[421], "[PAD421]");
  EXPECT_EQ(gguf->token_types[421], 5);
  EXPECT_EQ(gguf->token_types[*gguf->end_id], 3);

  const auto original = ParseTokenizer(file.dump(), "", "<|end_of_text|>");
  ASSERT_TRUE(original.ok()) << original.status();
  const auto copy = Make(*gguf);
  EXPECT_EQ(copy->vocab_size(), (*original)->vocab_size());
  EXPECT_EQ(copy->end_of_document(), (*original)->end_of_document());
  for (const json& one : json::parse(ReadFile(std::string(kLlama3) + "/cases.json").value())) {
    const std::string text = absl::HexStringToBytes(one["bytes"].get<std::string>());
    EXPECT_EQ(Encode(*copy, text), Encode(**original, text)) << text;
  }
}

TEST(GgufTokenizer, ASentencePieceOneComesBackWithoutItsFile) {
  const std::string model = ReadFile(std::string(kSentencePiece) + "/tokenizer.model").value();
  const auto gguf = GgufTokenizerOf(model, "", 600);
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  EXPECT_EQ(gguf->model, "llama");
  EXPECT_EQ(gguf->unknown_id, 0);
  EXPECT_EQ(gguf->begin_id, 1);
  EXPECT_EQ(gguf->end_id, 2);
  const auto copy = Make(*gguf);
  ForPlainTexts(kSentencePiece, [&](const std::string& text, const std::vector<int32_t>& ids) {
    EXPECT_EQ(Encode(*copy, text), ids) << text;
  });
  // And from the tokenizer.json that this has made.
  const TokenizerFiles files = FilesOfGgufTokenizer(*gguf).value();
  const auto again = GgufTokenizerOf(files.tokenizer_json, files.tokenizer_config_json, 600);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->tokens, gguf->tokens);
  EXPECT_EQ(again->token_types, gguf->token_types);
  EXPECT_EQ(again->add_space_prefix, gguf->add_space_prefix);
  EXPECT_EQ(again->add_begin, gguf->add_begin);
  const auto twice = Make(*again);
  ForPlainTexts(kSentencePiece, [&](const std::string& text, const std::vector<int32_t>& ids) {
    EXPECT_EQ(Encode(*twice, text), ids) << text;
  });
}

TEST(GgufTokenizer, TextsBeginAsTheTokenizerItselfHasIt) {
  // The token of the post-processor, whatever the config says.
  json file = ByteLevelFile();
  const auto begin = [](const char* token) {
    return json{{"type", "RobertaProcessing"}, {"cls", {token, 0}}, {"sep", {token, 0}}};
  };
  file["post_processor"] = {{"type", "Sequence"}, {"processors", {begin("<|begin_of_text|>")}}};
  const auto named = GgufTokenizerOf(
      file.dump(), R"({"eos_token": "<|end_of_text|>", "add_bos_token": false})", 420);
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->add_begin, true);
  const auto original = ParseTokenizer(file.dump(), "", "<|end_of_text|>");
  ASSERT_TRUE(original.ok()) << original.status();
  ASSERT_TRUE((*original)->begin_of_document().has_value());
  EXPECT_EQ(named->begin_id, *(*original)->begin_of_document());
  EXPECT_EQ(Make(*named)->begin_of_document(), (*original)->begin_of_document());
  file["post_processor"] = begin("none");
  EXPECT_THAT(std::string(GgufTokenizerOf(file.dump(), "", 420).status().message()),
              HasSubstr("post_processor: begins texts with \"none\", which is no token"));
  file["post_processor"] = nullptr;
  EXPECT_EQ(GgufTokenizerOf(file.dump(), R"({"add_bos_token": true})", 420)->add_begin, false);

  const std::string model = ReadFile(std::string(kSentencePiece) + "/tokenizer.model").value();
  EXPECT_EQ(GgufTokenizerOf(model, "", 600)->add_begin, true);
  EXPECT_EQ(GgufTokenizerOf(model, R"({"add_bos_token": false})", 600)->add_begin, false);
}

TEST(GgufTokenizer, FilesThatWouldExhaustTheStackAreRefused) {
  constexpr size_t kDepth = 1'000'000;
  const std::string nest =
      R"({"model": )" + std::string(kDepth, '[') + std::string(kDepth, ']') + "}";
  EXPECT_TRUE(absl::IsInvalidArgument(GgufTokenizerOf(nest, "", 420).status()));
  const std::string file = ByteLevelFile().dump();
  EXPECT_THAT(std::string(GgufTokenizerOf(file, nest, 420).status().message()),
              HasSubstr("tokenizer_config.json: "));
}

TEST(GgufTokenizer, WaysOfSayingTheSameAreTheSame) {
  json file = ByteLevelFile();
  json& split = file["pre_tokenizer"]["pretokenizers"][0];
  split["behavior"] = "Removed";
  split["invert"] = true;
  const auto byte_level = GgufTokenizerOf(file.dump(), "", 420);
  ASSERT_TRUE(byte_level.ok()) << byte_level.status();
  EXPECT_EQ(byte_level->pre, "llama-bpe");

  const std::string model = ReadFile(std::string(kSentencePiece) + "/tokenizer.model").value();
  GgufTokenizer pieces = GgufTokenizerOf(model, "", 600).value();
  pieces.add_space_prefix = false;
  json gemma = json::parse(FilesOfGgufTokenizer(pieces)->tokenizer_json);
  gemma["normalizer"] = gemma["normalizer"]["normalizers"][0];
  gemma["pre_tokenizer"] = {{"type", "Split"},
                            {"pattern", {{"String", " "}}},
                            {"behavior", "MergedWithPrevious"},
                            {"invert", false}};
  const auto again = GgufTokenizerOf(gemma.dump(), "", 600);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->add_space_prefix, false);
  EXPECT_EQ(again->tokens, pieces.tokens);
}

TEST(GgufTokenizer, SpecialTokensAreFoundInText) {
  GgufTokenizer gguf;
  gguf.model = "gpt2";
  gguf.pre = "gpt-2";
  gguf.tokens = {"a", "b", "ab", "<|end|>", "<user>", "[PAD5]"};
  gguf.token_types = {1, 1, 1, 3, 4, 5};
  gguf.merges = {"a b"};
  gguf.end_id = 3;
  const auto tokenizer = Make(gguf);
  EXPECT_THAT(Encode(*tokenizer, "aab<|end|><user>"), ElementsAre(0, 2, 3, 4));
  EXPECT_EQ(tokenizer->end_of_document(), 3);
}

TEST(GgufTokenizer, GemmasSpacesAreMergedLikeAnythingElse) {
  GgufTokenizer gguf;
  gguf.architecture = "gemma3";
  gguf.model = "llama";
  gguf.tokens = {"<unk>", "<eos>", "  ", "    ", "a", "▁", "▁a", "\n\n"};
  gguf.token_types = {2, 3, 4, 4, 1, 1, 1, 4};
  gguf.scores.assign(8, -1000);
  gguf.end_id = 1;
  gguf.add_space_prefix = false;
  const auto tokenizer = Make(gguf);
  EXPECT_THAT(Encode(*tokenizer, "a     a\n\n"), ElementsAre(4, 3, 6, 7));
  EXPECT_EQ(tokenizer->Decode(Encode(*tokenizer, "a     a")), "a     a");
}

std::string RefusalToRead(const std::function<void(GgufTokenizer&)>& change) {
  GgufTokenizer gguf;
  gguf.model = "gpt2";
  gguf.pre = "gpt-2";
  gguf.tokens = {"a", "b"};
  gguf.end_id = 1;
  change(gguf);
  const absl::Status status = FilesOfGgufTokenizer(gguf).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(GgufTokenizer, NamesTheKeyThatItCannotRead) {
  EXPECT_EQ(RefusalToRead([](GgufTokenizer& gguf) { gguf.model = "bert"; }),
            "tokenizer.ggml.model: \"bert\" is not supported; gpt2 and llama are");
  EXPECT_THAT(RefusalToRead([](GgufTokenizer& gguf) { gguf.pre = "viking"; }),
              HasSubstr("tokenizer.ggml.pre: \"viking\" is not supported; these are: gpt-2, "));
  EXPECT_EQ(RefusalToRead([](GgufTokenizer& gguf) { gguf.tokens.clear(); }),
            "tokenizer.ggml.tokens: is missing or empty");
  EXPECT_EQ(RefusalToRead([](GgufTokenizer& gguf) { gguf.tokens[1] = "a"; }),
            "tokenizer.ggml.tokens: 0 and 1 are both \"a\"");
  EXPECT_EQ(RefusalToRead([](GgufTokenizer& gguf) { gguf.token_types = {1}; }),
            "tokenizer.ggml.token_type: has 1 entries for 2 tokens");
  EXPECT_EQ(RefusalToRead([](GgufTokenizer& gguf) {
              gguf.token_types = {1, 9};
            }),
            "tokenizer.ggml.token_type: 9 is not known");
  EXPECT_EQ(RefusalToRead([](GgufTokenizer& gguf) { gguf.end_id = 2; }),
            "tokenizer.ggml.eos_token_id: 2 is no token; there are 2");
  EXPECT_EQ(RefusalToRead([](GgufTokenizer& gguf) { gguf.model = "llama"; }),
            "tokenizer.ggml.scores: is missing");
}

TEST(GgufTokenizer, PiecesWhoseMergesAreTheSquareOfThemAreRefused) {
  // Of 400 KB, and all ways to cut them would be 270 MB.
  EXPECT_THAT(RefusalToRead([](GgufTokenizer& gguf) {
                gguf.model = "llama";
                gguf.tokens = {"<s>", "</s>"};
                for (size_t length = 1; length < 900; ++length) {
                  gguf.tokens.push_back(std::string(length, 'a'));
                }
                gguf.scores.assign(gguf.tokens.size(), 0);
              }),
              HasSubstr("tokenizer.ggml.tokens: the merges that make these pieces have more than"));
}

std::string RefusalToWrite(const std::function<void(json&)>& change) {
  json file = ByteLevelFile();
  change(file);
  const absl::Status status = GgufTokenizerOf(file.dump(), "", 420).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(GgufTokenizer, NamesWhatGgufHasNoWordFor) {
  EXPECT_THAT(RefusalToWrite([](json& file) {
                file["normalizer"] = {{"type", "NFC"}};
              }),
              HasSubstr("GGUF has no name for this pre-tokenizer, which cuts by"));
  EXPECT_EQ(RefusalToWrite([](json& file) {
              file["normalizer"] = {{"type", "NFKC"}};
            }),
            "GGUF has no name for this normalizer of a byte-level tokenizer");
  EXPECT_EQ(RefusalToWrite([](json& file) {
              file["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true;
            }),
            "GGUF has no name for this pre-tokenizer: a prefix space");
  EXPECT_EQ(RefusalToWrite([](json& file) { file["added_tokens"][0]["lstrip"] = true; }),
            "GGUF has no word for \"lstrip\" of added token \"<|begin_of_text|>\"");
  EXPECT_THAT(RefusalToWrite([](json& file) { file["model"]["vocab"]["more"] = 500; }),
              HasSubstr("token \"more\" has id 500, but the model has 420"));
  EXPECT_EQ(RefusalToWrite([](json& file) { file["model"]["vocab"][""] = 419; }),
            "GGUF has no word for token 419, which has 0 bytes, not 1 to 1024");
  EXPECT_THAT(RefusalToWrite([](json& file) { file.erase("model"); }),
              HasSubstr("tokenizer.json: "));
  const std::string unigram =
      ReadFile("tests/golden/tokenizer_sentencepiece_unigram/tokenizer.model").value();
  EXPECT_EQ(GgufTokenizerOf(unigram, "", 1000).status().message(),
            "GGUF has no word for a unigram model");
}

}  // namespace
}  // namespace millrace
