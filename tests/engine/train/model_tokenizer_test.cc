#include "engine/train/model_tokenizer.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/data/tokenizer_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/data/text_files.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A GGUF file with nothing but metadata.
std::string WriteMetadata(const GgufMetadata& metadata) {
  const std::string path = EmptyFolder() + "/model.gguf";
  auto writer = GgufWriter::Create(path, metadata, {});
  EXPECT_TRUE(writer.ok()) << writer.status();
  EXPECT_TRUE(writer->Finish().ok());
  return path;
}

GgufMetadata Small() {
  return {{"tokenizer.ggml.model", GgufValue::String("gpt2")},
          {"tokenizer.ggml.pre", GgufValue::String("smollm")},
          {"tokenizer.ggml.tokens", GgufValue::Strings({"a", "1", "11", "aa", "<|end|>"})},
          {"tokenizer.ggml.token_type", GgufValue::Int32s({1, 1, 1, 1, 3})},
          {"tokenizer.ggml.merges", GgufValue::Strings({"1 1", "a a"})},
          {"tokenizer.ggml.eos_token_id", GgufValue::Uint32(4)}};
}

TEST(ModelTokenizer, OfAGgufFileIsItsMetadatas) {
  const auto tokenizer = LoadModelTokenizer(WriteMetadata(Small()));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::vector<int32_t> tokens;
  (*tokenizer)->Encode("aaa11<|end|>", &tokens);
  EXPECT_THAT(tokens, ElementsAre(3, 0, 1, 1, 4));
  EXPECT_EQ((*tokenizer)->end_of_document(), 4);
}

TEST(ModelTokenizer, OfAGgufFileIsTheSameOnceItIsInFiles) {
  const std::string path = WriteMetadata(Small());
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const absl::Status status = WriteGgufTokenizerFiles(path, folder);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(LoadTokenizer(folder).value()->name(), LoadModelTokenizer(path).value()->name());
}

TEST(ModelTokenizer, OfADirectoryGoesThroughAGgufFile) {
  const std::string folder = "tests/golden/tokenizer_sentencepiece_bpe";
  const auto metadata = TokenizerMetadata(folder, 640);
  ASSERT_TRUE(metadata.ok()) << metadata.status();
  const auto copy = LoadModelTokenizer(WriteMetadata(*metadata));
  ASSERT_TRUE(copy.ok()) << copy.status();
  const auto original = LoadModelTokenizer(folder);
  ASSERT_TRUE(original.ok()) << original.status();
  std::vector<int32_t> expected, tokens;
  (*original)->Encode("the naïve  $5, 東京", &expected);
  (*copy)->Encode("the naïve  $5, 東京", &tokens);
  EXPECT_EQ(tokens, expected);
}

TEST(ModelTokenizer, ErrorsNameTheFileAndTheKey) {
  GgufMetadata metadata = Small();
  metadata[2].second = GgufValue::String("a b");
  EXPECT_THAT(std::string(LoadModelTokenizer(WriteMetadata(metadata)).status().message()),
              HasSubstr("model.gguf: tokenizer.ggml.tokens is not of the type it must be"));
  EXPECT_THAT(std::string(LoadModelTokenizer(WriteMetadata({})).status().message()),
              HasSubstr("model.gguf: tokenizer.ggml.model: is missing"));
  EXPECT_THAT(std::string(TokenizerMetadata(EmptyFolder(), 10).status().message()),
              HasSubstr("has no tokenizer"));
  EXPECT_THAT(
      std::string(TokenizerMetadata("tests/golden/tokenizer_accents", 999).status().message()),
      HasSubstr("tokenizer_accents/tokenizer.json: GGUF has no word for"));
}

}  // namespace
}  // namespace millrace
