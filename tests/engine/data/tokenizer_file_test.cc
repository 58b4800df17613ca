#include "engine/data/tokenizer_file.h"

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/data/unicode_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/engine/data/text_files.h"

namespace millrace {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int32_t> Encode(const Tokenizer& tokenizer, absl::string_view text) {
  std::vector<int32_t> tokens;
  tokenizer.Encode(text, &tokens);
  return tokens;
}

// Letters a, b, c, their pairs "ab" and the triple "abc", and the end of documents.
json Small() {
  return json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 5, "content": "</s>", "special": true, "normalized": false,
                      "lstrip": false, "rstrip": false, "single_word": false}],
    "normalizer": null, "pre_tokenizer": null, "post_processor": null,
    "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4},
              "merges": ["a b", ["ab", "c"]]}})");
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Parse(const json& file) {
  return ParseTokenizer(file.dump(), "small", "");
}

std::string Refusal(const std::function<void(json&)>& change) {
  json file = Small();
  change(file);
  const absl::Status status = Parse(file).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

class GoldenTokenizer : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenTokenizer, GivesTheTokensAndTextsOfTheReference) {
  const std::string folder = absl::StrCat("tests/golden/tokenizer_", GetParam());
  const auto tokenizer = LoadTokenizer(folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const json cases = json::parse(ReadFile(folder + "/cases.json").value());
  ASSERT_GT(cases.size(), 100);
  for (const json& one : cases) {
    const std::string text = absl::HexStringToBytes(one["bytes"].get<std::string>());
    const auto ids = one["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(Encode(**tokenizer, text), ids) << text;
    if (!one["decoded"].is_string()) continue;
    std::string storage;
    EXPECT_EQ(WellFormed((*tokenizer)->Decode(ids), &storage), one["decoded"].get<std::string>())
        << text;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTokenizer,
                         ::testing::Values("gpt2", "llama3", "metaspace", "prepend", "accents",
                                           "sentencepiece_bpe", "sentencepiece_unigram"),
                         [](const auto& param) { return std::string(param.param); });

TEST(TokenizerFile, MergesInOrderFromTheLeft) {
  const auto tokenizer = Parse(Small());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->vocab_size(), 6);
  EXPECT_EQ((*tokenizer)->end_of_document(), 5);
  EXPECT_THAT(Encode(**tokenizer, "abcabxba</s>c"), ElementsAre(4, 3, 1, 0, 5, 2));
  EXPECT_EQ((*tokenizer)->Decode({4, 3, 5, 17, -1, 2}), "abcabc");
}

TEST(TokenizerFile, LongWordsGetTheTokensThatShortOnesGet) {
  const auto tokenizer = Parse(Small());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::string text;
  std::vector<int32_t> expected;
  for (int i = 0; i < 200; ++i) {
    text += "abcbab";
    expected.insert(expected.end(), {4, 1, 3});
  }
  EXPECT_EQ(Encode(**tokenizer, text), expected);
}

TEST(TokenizerFile, ManyThreadsMayEncode) {
  const auto tokenizer = LoadTokenizer("tests/golden/tokenizer_llama3/tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::string text = "Zu früh, 12345 'twas the naïve\n\n  café";
  const std::vector<int32_t> expected = Encode(**tokenizer, text);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 100; ++k) EXPECT_EQ(Encode(**tokenizer, text), expected);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(TokenizerFile, TheConfigurationNamesTheEndOfDocuments) {
  const std::string folder = EmptyFolder();
  WriteText(folder + "/tokenizer.json", Small().dump());
  const std::string usual = LoadTokenizer(folder).value()->name();
  WriteText(folder + "/tokenizer_config.json", R"({"eos_token": {"content": "c"}})");
  const auto tokenizer = LoadTokenizer(folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->end_of_document(), 2);
  EXPECT_NE((*tokenizer)->name(), usual);
  EXPECT_EQ(LoadTokenizer(folder, "b").value()->end_of_document(), 1);
  EXPECT_THAT(std::string(LoadTokenizer(folder, "x").status().message()),
              HasSubstr("has no token \"x\" to end documents with"));
}

TEST(TokenizerFile, ThePostProcessorNamesTheBeginOfDocuments) {
  json file = Small();
  const auto begin = [&](const json& processor) {
    file["post_processor"] = processor;
    return ParseTokenizer(file.dump(), "small", "c").value()->begin_of_document();
  };
  EXPECT_EQ(begin(nullptr), std::nullopt);
  EXPECT_EQ(begin({{"type", "ByteLevel"}}), std::nullopt);
  const json special = {{"SpecialToken", {{"id", "b"}, {"type_id", 0}}}};
  const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const json first = {{"type", "TemplateProcessing"}, {"single", {special, text}}};
  EXPECT_EQ(begin(first), 1);
  EXPECT_EQ(begin({{"type", "TemplateProcessing"}, {"single", {text, special}}}), std::nullopt);
  EXPECT_EQ(begin({{"type", "Sequence"}, {"processors", {{{"type", "ByteLevel"}}, first}}}), 1);
  const auto tokenizer = ParseTokenizer(file.dump(), "small", "c");
  EXPECT_THAT(EncodePrompt(**tokenizer, "a"), testing::ElementsAre(1, 0));
  EXPECT_EQ(Refusal([&](json& other) {
              other["post_processor"] = {{"type", "TemplateProcessing"},
                                         {"single", {special, special, text}}};
            }),
            "post_processor: more than one token before a text is not supported");
}

TEST(TokenizerFile, RefusesByNameWhatItDoesNotHandle) {
  EXPECT_EQ(Refusal([](json& file) { file["surprise"] = 1; }),
            "tokenizer.json: field \"surprise\" is not supported");
  EXPECT_EQ(Refusal([](json& file) { file["model"]["type"] = "Unigram"; }),
            "model: type \"Unigram\" is not supported; only BPE is");
  EXPECT_EQ(Refusal([](json& file) { file["model"]["dropout"] = 0.1; }),
            "model: \"dropout\" is not supported; set it to null");
  EXPECT_EQ(Refusal([](json& file) { file["model"]["end_of_word_suffix"] = "</w>"; }),
            "model: \"end_of_word_suffix\" is not supported");
  EXPECT_EQ(Refusal([](json& file) {
              file["normalizer"] = {{"type", "Precompiled"}};
            }),
            "normalizer: type \"Precompiled\" is not supported");
  EXPECT_EQ(Refusal([](json& file) {
              file["pre_tokenizer"] = {{"type", "UnicodeScripts"}};
            }),
            "pre_tokenizer: type \"UnicodeScripts\" is not supported");
  EXPECT_EQ(Refusal([](json& file) {
              file["post_processor"] = {{"type", "Other"}};
            }),
            "post_processor: type \"Other\" is not supported");
  EXPECT_EQ(Refusal([](json& file) {
              file["decoder"] = {{"type", "CTC"}};
            }),
            "decoder: type \"CTC\" is not supported");
  EXPECT_EQ(Refusal([](json& file) { file["added_tokens"][0]["colour"] = "red"; }),
            "added_tokens[0]: field \"colour\" is not supported");
}

TEST(TokenizerFile, RefusesVocabulariesThatContradictThemselves) {
  EXPECT_EQ(Refusal([](json& file) { file["model"]["vocab"]["d"] = 4; }),
            "model: tokens \"abc\" and \"d\" have the same id, 4");
  EXPECT_EQ(Refusal([](json& file) { file["model"]["vocab"]["d"] = 1 << 30; }),
            "model: the id of token \"d\" must be a whole number from 0 to 16777215");
  EXPECT_EQ(Refusal([](json& file) { file["model"]["merges"].push_back("b c"); }),
            "model: merge 2: token \"bc\" is not in the vocabulary");
  EXPECT_EQ(Refusal([](json& file) { file["model"]["unk_token"] = "?"; }),
            "model: unk_token \"?\" is not in the vocabulary");
  EXPECT_EQ(Refusal([](json& file) { file["added_tokens"][0]["id"] = 9; }),
            "added_tokens: \"</s>\" has id 9, but its place in the vocabulary gives it 5");
}

TEST(TokenizerFile, RefusesHostileFiles) {
  EXPECT_FALSE(ParseTokenizer(std::string(100000, '['), "", "").ok());
  EXPECT_FALSE(ParseTokenizer("", "", "").ok());
  EXPECT_FALSE(ParseTokenizer("[]", "", "").ok());
  EXPECT_THAT(Refusal([](json& file) {
                json inner = {{"type", "Sequence"}, {"normalizers", json::array()}};
                for (int i = 0; i < 20; ++i) {
                  inner = {{"type", "Sequence"}, {"normalizers", json::array({inner})}};
                }
                file["normalizer"] = inner;
              }),
              HasSubstr("too deep"));
  EXPECT_THAT(Refusal([](json& file) {
                const json replace = {{"type", "Replace"},
                                      {"pattern", {{"String", "a"}}},
                                      {"content", std::string(40, 'a')}};
                file["normalizer"] = {{"type", "Sequence"},
                                      {"normalizers", json::array({replace, replace})}};
              }),
              HasSubstr("more than 1024 times as long"));
}

TEST(TokenizerFile, AFolderWithoutATokenizerIsSaidToBeOne) {
  const std::string folder = EmptyFolder();
  const absl::Status status = LoadTokenizer(folder).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("has no tokenizer: neither tokenizer.json nor tokenizer.model is there"));
  WriteText(folder + "/tekken.json", "{}");
  EXPECT_THAT(std::string(LoadTokenizer(folder).status().message()),
              HasSubstr("; transformers makes a tokenizer.json of its tekken.json"));
}

TEST(TokenizerFile, APatternThatTakesForeverEndsTheCutting) {
  json file = Small();
  file["pre_tokenizer"] = {{"type", "Split"},
                           {"pattern", {{"Regex", "(?:a+)+(?:a+)+(?:a+)+x"}}},
                           {"behavior", "Isolated"},
                           {"invert", false}};
  const auto tokenizer = Parse(file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(Encode(**tokenizer, std::string(1000, 'a')).size(), 1000);
}

}  // namespace
}  // namespace millrace
