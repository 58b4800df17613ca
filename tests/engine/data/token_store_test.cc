#include "engine/data/token_store.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/data/text_files.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

// Bytes, with as many tokens more as make the vocabulary need 32 bits.
class WideTokenizer : public Tokenizer {
 public:
  std::string name() const override { return "wide"; }
  int64_t vocab_size() const override { return 70257; }
  int32_t end_of_document() const override { return 70256; }
  void Encode(absl::string_view text, std::vector<int32_t>* tokens) const override {
    for (char c : text) tokens->push_back(static_cast<unsigned char>(c) + 70000);
  }
  std::string Decode(absl::Span<const int32_t>) const override { return ""; }
};

class TokenStoreTest : public ::testing::Test {
 protected:
  TokenStoreTest() {
    fs::create_directories(dataset_);
    tokenizer_ = *MakeTokenizer("byte");
  }

  // Prepares, counting in `builds_` how often the text was read.
  absl::StatusOr<TokenStore> Prepare(const Tokenizer& tokenizer) {
    bool read = false;
    absl::StatusOr<TokenStore> store =
        TokenStore::Prepare(dataset_, tokenizer, folder_, [&](int64_t done, int64_t total) {
          read = true;
          EXPECT_LE(done, total);
          return absl::OkStatus();
        });
    builds_ += read;
    return store;
  }
  absl::StatusOr<TokenStore> Prepare() { return Prepare(*tokenizer_); }

  static std::vector<int32_t> Tokens(const TokenStore& store) {
    std::vector<int32_t> tokens(store.size());
    store.Read(0, absl::MakeSpan(tokens));
    return tokens;
  }

  const std::string root_ = EmptyFolder();
  const std::string dataset_ = root_ + "/dataset", folder_ = root_ + "/job/prepared";
  std::unique_ptr<Tokenizer> tokenizer_;
  int builds_ = 0;
};

TEST_F(TokenStoreTest, HoldsEveryDocumentWithItsEnd) {
  WriteText(dataset_ + "/a.txt", "hi");
  WriteText(dataset_ + "/b.jsonl", "{\"text\":\"x\"}\n{\"text\":\"yz\"}\n");
  const absl::StatusOr<TokenStore> store = Prepare();
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_THAT(Tokens(*store), ElementsAre('h', 'i', 256, 'x', 256, 'y', 'z', 256));
  EXPECT_THAT(store->document_ends(), ElementsAre(3, 5, 8));
  std::vector<int32_t> part(2);
  store->Read(4, absl::MakeSpan(part));
  EXPECT_THAT(part, ElementsAre(256, 'y'));
}

// Bytes, and a token that begins documents.
class BeginningTokenizer : public WideTokenizer {
 public:
  std::string name() const override { return "beginning"; }
  std::optional<int32_t> begin_of_document() const override { return 7; }
};

TEST_F(TokenStoreTest, DocumentsBeginWithTheTokenizersBegin) {
  WriteText(dataset_ + "/b.jsonl", "{\"text\":\"x\"}\n{\"text\":\"yz\"}\n");
  const absl::StatusOr<TokenStore> store = Prepare(BeginningTokenizer());
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_THAT(Tokens(*store),
              ElementsAre(7, 70000 + 'x', 70256, 7, 70000 + 'y', 70000 + 'z', 70256));
}

TEST_F(TokenStoreTest, LargeVocabulariesTakeFourBytesAToken) {
  WriteText(dataset_ + "/a.txt", "hi");
  const absl::StatusOr<TokenStore> store = Prepare(WideTokenizer());
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_THAT(Tokens(*store), ElementsAre(70000 + 'h', 70000 + 'i', 70256));
  EXPECT_EQ(fs::file_size(folder_ + "/tokens.bin"), 12);
}

TEST_F(TokenStoreTest, IsMadeOnceAndOpenedAfterwards) {
  WriteText(dataset_ + "/a.txt", "hello");
  const absl::StatusOr<TokenStore> first = Prepare();
  const absl::StatusOr<TokenStore> second = Prepare();
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(builds_, 1);
  EXPECT_EQ(Tokens(*first), Tokens(*second));
  EXPECT_EQ(first->sha256(), second->sha256());
}

TEST_F(TokenStoreTest, IsMadeAgainWhenTheDatasetOrTheTokenizerIsAnother) {
  WriteText(dataset_ + "/a.txt", "hello");
  const std::string before = Prepare()->sha256();
  WriteText(dataset_ + "/b.txt", "more");
  const absl::StatusOr<TokenStore> more = Prepare();
  ASSERT_TRUE(more.ok());
  EXPECT_EQ(builds_, 2);
  EXPECT_EQ(more->size(), 11);
  EXPECT_NE(more->sha256(), before);
  EXPECT_TRUE(Prepare(WideTokenizer()).ok());
  EXPECT_EQ(builds_, 3);
}

TEST_F(TokenStoreTest, ADamagedStoreIsMadeAgain) {
  WriteText(dataset_ + "/a.txt", "hello");
  const std::string before = Prepare()->sha256();
  fs::resize_file(folder_ + "/tokens.bin", 4);
  ASSERT_TRUE(Prepare().ok());
  EXPECT_EQ(builds_, 2);
  fs::remove(folder_ + "/documents.bin");
  ASSERT_TRUE(Prepare().ok());
  EXPECT_EQ(builds_, 3);
  WriteText(folder_ + "/manifest.json", "{\"source\":");
  const absl::StatusOr<TokenStore> store = Prepare();
  ASSERT_TRUE(store.ok());
  EXPECT_EQ(builds_, 4);
  EXPECT_EQ(store->sha256(), before);
}

TEST_F(TokenStoreTest, AnInterruptedPreparationLeavesNothing) {
  WriteText(dataset_ + "/a.txt", "hello");
  const absl::StatusOr<TokenStore> store =
      TokenStore::Prepare(dataset_, *tokenizer_, folder_,
                          [](int64_t, int64_t) { return absl::CancelledError("stop"); });
  EXPECT_TRUE(absl::IsCancelled(store.status()));
  EXPECT_FALSE(fs::exists(folder_));
  EXPECT_FALSE(fs::exists(folder_ + ".tmp"));
  // What a killed process may leave.
  WriteText(folder_ + ".tmp/tokens.bin", "rubbish");
  EXPECT_EQ(Prepare()->size(), 6);
}

TEST_F(TokenStoreTest, BadTextIsAnError) {
  WriteText(dataset_ + "/a.txt", "ok\xff");
  EXPECT_TRUE(absl::IsInvalidArgument(Prepare().status()));
  WriteText(dataset_ + "/a.txt", "");
  EXPECT_TRUE(absl::IsInvalidArgument(Prepare().status()));
  fs::remove_all(dataset_);
  EXPECT_TRUE(absl::IsNotFound(Prepare().status()));
}

}  // namespace
}  // namespace millrace
