#include "engine/data/tokenizer.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

std::unique_ptr<Tokenizer> Byte() {
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = MakeTokenizer("byte");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

TEST(ByteTokenizer, OneTokenAByteAndOneThatEndsADocument) {
  const std::unique_ptr<Tokenizer> byte = Byte();
  EXPECT_EQ(byte->vocab_size(), 257);
  EXPECT_EQ(byte->end_of_document(), 256);
  std::vector<int32_t> tokens = {7};
  byte->Encode("Aé", &tokens);
  EXPECT_THAT(tokens, ::testing::ElementsAre(7, 65, 0xc3, 0xa9));
}

TEST(ByteTokenizer, DecodesWhatItEncodes) {
  const std::unique_ptr<Tokenizer> byte = Byte();
  std::string all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  std::vector<int32_t> tokens;
  byte->Encode(all, &tokens);
  EXPECT_EQ(byte->Decode(tokens), all);
}

TEST(ByteTokenizer, DecodesNothingForTokensThatAreNoBytes) {
  EXPECT_EQ(Byte()->Decode({72, 256, 105, 300, -1}), "Hi");
}

TEST(MakeTokenizer, KnowsItsNames) {
  EXPECT_EQ(MakeTokenizer("").value()->name(), "byte");
  EXPECT_EQ(MakeTokenizer("byte").value()->name(), "byte");
  const absl::Status status = MakeTokenizer("bpe").status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(status.message(), "tokenizer: \"bpe\" is not known; choose one of: byte");
}

}  // namespace
}  // namespace millrace
