#include "engine/data/sentencepiece_file.h"

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/data/sentencepiece_tokenizer.h"
#include "engine/data/tokenizer_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/data/text_files.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = SentencePieceModel::Kind;

constexpr char kUnigram[] = "tests/golden/tokenizer_sentencepiece_unigram/tokenizer.model";
constexpr char kBpe[] = "tests/golden/tokenizer_sentencepiece_bpe/tokenizer.model";

// A field that holds bytes, of a number below 16 and less than 128 bytes.
std::string Bytes(int number, absl::string_view bytes) {
  return absl::StrCat(std::string(1, static_cast<char>(number << 3 | 2)),
                      std::string(1, static_cast<char>(bytes.size())), bytes);
}

std::string Number(int number, int value) {
  std::string field;
  for (int part = number << 3; part != 0; part >>= 7) {
    field.push_back(static_cast<char>(part < 128 ? part : part | 128));
  }
  field.push_back(static_cast<char>(value));
  return field;
}

std::string Piece(absl::string_view text, Kind kind = Kind::kNormal) {
  return Bytes(1, Bytes(1, text) + Number(3, static_cast<int>(kind)));
}

const std::string& Specials() {
  static const std::string kSpecials =
      Piece("<unk>", Kind::kUnknown) + Piece("<s>", Kind::kControl) + Piece("</s>", Kind::kControl);
  return kSpecials;
}

std::string Refusal(absl::string_view bytes) {
  const absl::Status status = ParseSentencePieceModel(bytes).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

std::vector<int32_t> Encode(const Tokenizer& tokenizer, absl::string_view text) {
  std::vector<int32_t> tokens;
  tokenizer.Encode(text, &tokens);
  return tokens;
}

TEST(SentencePieceFile, IsReadWithItsDefaults) {
  const auto model = ParseSentencePieceModel(Specials() + Piece("a"));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->type, SentencePieceModel::Type::kUnigram);
  EXPECT_EQ(model->pieces.size(), 4);
  EXPECT_EQ(model->unknown_id, 0);
  EXPECT_TRUE(model->add_dummy_prefix);
  EXPECT_FALSE(model->byte_fallback);
}

TEST(SentencePieceFile, RefusesByNameWhatItDoesNotHandle) {
  EXPECT_EQ(Refusal(Specials() + Bytes(2, Number(3, 3))),
            "is a model of words; unigram and BPE models are supported");
  EXPECT_EQ(Refusal(Specials() + Bytes(5, Bytes(2, "x"))),
            "has a denormalizer, which is not supported");
}

TEST(SentencePieceFile, RefusesVocabulariesThatContradictThemselves) {
  EXPECT_EQ(Refusal(""), "is no SentencePiece model: it has no pieces");
  EXPECT_EQ(Refusal(Piece("a")), "has no unknown token");
  EXPECT_EQ(Refusal(Specials() + Piece("a") + Piece("a")), "piece 4, \"a\", is there twice");
  EXPECT_EQ(Refusal(Specials() + Piece("?", Kind::kUnknown)), "has two unknown tokens");
  EXPECT_EQ(Refusal(Specials() + Piece("\xff")), "piece 3 is not UTF-8");
  EXPECT_EQ(Refusal(Specials() + Piece("")), "piece 3 must have 1 to 1024 bytes");
  EXPECT_EQ(Refusal(Specials() + Piece("<0x4>", Kind::kByte)), "piece 3 stands for no byte");
  EXPECT_EQ(Refusal(Specials() + Piece("<0x41>", Kind::kByte)),
            "has tokens for 1 bytes where it must have none");
  EXPECT_EQ(Refusal(Specials() + Bytes(2, Number(35, 1))),
            "has tokens for 0 bytes where it must have 256");
}

TEST(SentencePieceFile, NoCorruptionIsWorseThanARefusal) {
  for (const char* path : {kUnigram, kBpe}) {
    const std::string whole = ReadFile(path).value();
    std::mt19937 random(5);
    int read = 0;
    for (int i = 0; i < 2000; ++i) {
      std::string bytes = whole;
      if (i % 4 == 0) bytes.resize(random() % bytes.size());
      for (int k = 0; k < 3 && !bytes.empty(); ++k) {
        // The tables are at the end.
        const size_t from = k == 0 ? 0 : bytes.size() / 8 * 7;
        bytes[from + random() % (bytes.size() - from)] = static_cast<char>(random());
      }
      auto model = ParseSentencePieceModel(bytes);
      if (!model.ok()) {
        EXPECT_TRUE(absl::IsInvalidArgument(model.status())) << model.status();
        continue;
      }
      const auto tokenizer = MakeSentencePieceTokenizer(*std::move(model), "", "");
      if (!tokenizer.ok()) continue;
      ++read;
      (*tokenizer)->Decode(Encode(**tokenizer, "\xef\xac\x81 e\xcc\x81 AE\xc2\xad\n b, foo_bar"));
    }
    EXPECT_GT(read, 100);
  }
}

TEST(SentencePieceFile, IsFoundInAFolderWithTheEndThatTheConfigurationNames) {
  const std::string folder = EmptyFolder();
  WriteText(folder + "/tokenizer.model", ReadFile(kBpe).value());
  const auto tokenizer = LoadTokenizer(folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->begin_of_document(), 1);
  EXPECT_EQ((*tokenizer)->end_of_document(), 2);
  EXPECT_THAT((*tokenizer)->name(), HasSubstr("tokenizer.model sha256:"));
  EXPECT_EQ((*tokenizer)->Decode(Encode(**tokenizer, "the \xc3\xbc <sep>")), "the \xc3\xbc <sep>");

  WriteText(folder + "/tokenizer_config.json", R"({"eos_token": "<s>"})");
  const auto other = LoadTokenizer(folder);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ((*other)->end_of_document(), 1);
  EXPECT_NE((*other)->name(), (*tokenizer)->name());

  WriteText(folder + "/tokenizer_config.json", R"({"add_bos_token": false})");
  const auto bare = LoadTokenizer(folder);
  ASSERT_TRUE(bare.ok()) << bare.status();
  EXPECT_EQ((*bare)->begin_of_document(), std::nullopt);
  EXPECT_NE((*bare)->name(), (*tokenizer)->name());

  WriteText(folder + "/tokenizer_config.json", R"({"eos_token": "<end>"})");
  EXPECT_THAT(std::string(LoadTokenizer(folder).status().message()),
              HasSubstr("tokenizer.model: has no piece \"<end>\" to end documents with"));
}

TEST(SentencePieceFile, TokensThatOtherFilesAddAreRefused) {
  const std::string folder = EmptyFolder();
  WriteText(folder + "/tokenizer.model", ReadFile(kBpe).value());
  WriteText(folder + "/added_tokens.json", R"({"<s>": 1, "<|im_start|>": 600})");
  EXPECT_THAT(std::string(LoadTokenizer(folder).status().message()),
              HasSubstr("added_tokens.json adds token \"<|im_start|>\" (600)"));
  WriteText(folder + "/added_tokens.json", "{}");
  WriteText(folder + "/tokenizer_config.json",
            R"({"added_tokens_decoder": {"2": {"content": "</s>"}, "601": {"content": "<x>"}}})");
  EXPECT_THAT(std::string(LoadTokenizer(folder).status().message()),
              HasSubstr("tokenizer_config.json adds token \"<x>\" (601)"));
}

TEST(SentencePieceTokenizer, OfEqualScoresTheLeftmostIsMergedFirst) {
  SentencePieceModel model;
  model.type = SentencePieceModel::Type::kBpe;
  model.unknown_id = 0;
  model.add_dummy_prefix = model.remove_extra_whitespaces = false;
  model.pieces = {{"<unk>", 0, Kind::kUnknown},
                  {"</s>", 0, Kind::kControl},
                  {"a", -9},
                  {"b", -9},
                  {"ab", -1},
                  {"ba", -1}};
  const auto tokenizer = MakeSentencePieceTokenizer(model, "", "");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(Encode(**tokenizer, "bab"), ElementsAre(5, 3));
  EXPECT_THAT(Encode(**tokenizer, "aba"), ElementsAre(4, 2));
  EXPECT_THAT(Encode(**tokenizer, "xyab"), ElementsAre(0, 4));
}

TEST(SentencePieceTokenizer, TakesUnusedPiecesApartAgain) {
  SentencePieceModel model;
  model.type = SentencePieceModel::Type::kBpe;
  model.unknown_id = 0;
  model.add_dummy_prefix = model.remove_extra_whitespaces = false;
  model.pieces = {{"<unk>", 0, Kind::kUnknown},
                  {"</s>", 0, Kind::kControl},
                  {"a", -9},
                  {"b", -9},
                  {"ab", -1, Kind::kUnused},
                  {"abc", -2}};
  const auto tokenizer = MakeSentencePieceTokenizer(model, "", "");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(Encode(**tokenizer, "ab"), ElementsAre(2, 3));
  // "c" is no token, but "abc" is.
  EXPECT_THAT(Encode(**tokenizer, "abc"), ElementsAre(5));
  EXPECT_THAT(Encode(**tokenizer, "cca"), ElementsAre(0, 2));
}

}  // namespace
}  // namespace millrace
