#include "server/blobs/checkpoint_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/base/errors.h"
#include "tests/server/blobs/fake_checkpoint.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

class CheckpointStoreTest : public ::testing::Test {
 protected:
  CheckpointStoreTest() : paths_(MakeFolder()), store_(paths_) {}

  static std::string MakeFolder() {
    std::string pattern = absl::StrCat(getenv("TEST_TMPDIR"), "/data-XXXXXX");
    return mkdtemp(pattern.data());
  }

  void Write(int64_t step, std::optional<double> loss, const std::string& content = "weights") {
    WriteFakeCheckpoint(paths_.Checkpoints("one"), step, loss,
                        {{"config.json", "{}"}, {"model.safetensors", content}});
  }

  int64_t StepOf(const std::string& name) {
    auto checkpoint = store_.Get("one", name);
    return checkpoint.ok() ? checkpoint->step : -1;
  }

  std::string ReadAll(const std::string& path, int64_t offset) {
    auto reader = store_.OpenFile("one", "latest", path, offset);
    if (!reader.ok()) return reader.status().ToString();
    std::string all, chunk;
    do {
      EXPECT_TRUE(reader->Read(3, &chunk).ok());
      all += chunk;
    } while (!chunk.empty());
    return all;
  }

  DataPaths paths_;
  CheckpointStore store_;
};

TEST_F(CheckpointStoreTest, ListsCompleteOnesNewestFirst) {
  Write(100, 3.5);
  Write(1000, 2.5);
  Write(200, std::nullopt);
  std::filesystem::create_directories(paths_.Checkpoints("one") + "/300");
  std::filesystem::create_directories(paths_.Checkpoints("one") + "/.writing-400");
  const auto checkpoints = store_.List("one");
  ASSERT_EQ(checkpoints.size(), 3);
  EXPECT_EQ(checkpoints[0].step, 1000);
  EXPECT_EQ(checkpoints[1].step, 200);
  EXPECT_EQ(checkpoints[2].step, 100);
  EXPECT_EQ(checkpoints[0].size_bytes, 9);
  EXPECT_EQ(checkpoints[0].evaluation_loss, 2.5);
  EXPECT_FALSE(checkpoints[1].evaluation_loss.has_value());
  EXPECT_LT(absl::Now() - checkpoints[0].create_time, absl::Minutes(10));
  EXPECT_TRUE(store_.List("other").empty());
}

TEST_F(CheckpointStoreTest, DoesNotOfferATruncatedOne) {
  Write(100, 3.5);
  Write(200, 2.5);
  std::filesystem::resize_file(paths_.Checkpoints("one") + "/200/model.safetensors", 3);
  EXPECT_EQ(StepOf("latest"), 100);
  EXPECT_EQ(StepOf("200"), -1);
}

TEST_F(CheckpointStoreTest, KnowsLatestAndBest) {
  Write(100, 2.5);
  Write(200, 2.5);
  Write(300, 3.5);
  Write(400, std::nullopt);
  EXPECT_EQ(StepOf("latest"), 400);
  EXPECT_EQ(StepOf("best"), 100) << "the older one of two that are equal";
  EXPECT_EQ(StepOf("300"), 300);
}

TEST_F(CheckpointStoreTest, NamesTheStepsThatThereAre) {
  absl::Status status = store_.Get("one", "latest").status();
  EXPECT_EQ(ReasonOf(status), "CHECKPOINT_NOT_FOUND");
  EXPECT_THAT(std::string(status.message()), HasSubstr("no complete checkpoint yet"));
  Write(100, std::nullopt);
  Write(200, std::nullopt);
  status = store_.Get("one", "150").status();
  EXPECT_EQ(ReasonOf(status), "CHECKPOINT_NOT_FOUND");
  EXPECT_THAT(std::string(status.message()), HasSubstr("the steps 200, 100"));
  status = store_.Get("one", "best").status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("none that was evaluated"));
  EXPECT_EQ(ReasonOf(store_.Get("one", "newest").status()), "REQUEST_INVALID");
}

TEST_F(CheckpointStoreTest, ReadsAFileFromAnyOffset) {
  Write(100, 3.5, "0123456789");
  EXPECT_EQ(ReadAll("model.safetensors", 0), "0123456789");
  EXPECT_EQ(ReadAll("model.safetensors", 7), "789");
  EXPECT_EQ(ReadAll("model.safetensors", 10), "");
  EXPECT_EQ(ReasonOf(store_.OpenFile("one", "100", "model.safetensors", 11).status()),
            "OFFSET_OUT_OF_RANGE");
  EXPECT_EQ(ReasonOf(store_.OpenFile("one", "100", "model.safetensors", -1).status()),
            "OFFSET_OUT_OF_RANGE");
}

TEST_F(CheckpointStoreTest, CountsTheBytesOnDisk) {
  EXPECT_EQ(store_.StoredBytes(), 0);
  Write(100, 3.5, "0123456789");
  const int64_t one = store_.StoredBytes();
  EXPECT_GT(one, 10);
  Write(200, 3.5, "0123456789");
  EXPECT_EQ(store_.StoredBytes(), 2 * one);
}

TEST_F(CheckpointStoreTest, ServesOnlyWhatTheManifestNames) {
  Write(100, 3.5);
  for (const char* path : {"../../lock", "manifest.json", "/etc/passwd", "", "model.bin"}) {
    const absl::Status status = store_.OpenFile("one", "100", path, 0).status();
    EXPECT_EQ(ReasonOf(status), "FILE_NOT_FOUND") << path;
    EXPECT_THAT(std::string(status.message()), HasSubstr("config.json, model.safetensors"));
  }
}

TEST_F(CheckpointStoreTest, FinishesAFileWhoseCheckpointIsRemovedMeanwhile) {
  Write(100, 3.5, "0123456789");
  auto reader = store_.OpenFile("one", "100", "model.safetensors", 0);
  ASSERT_TRUE(reader.ok());
  std::string chunk;
  ASSERT_TRUE(reader->Read(4, &chunk).ok());
  Write(200, 3.0);
  std::filesystem::remove_all(paths_.Checkpoints("one") + "/100");
  ASSERT_TRUE(reader->Read(100, &chunk).ok());
  EXPECT_EQ(chunk, "456789");
  const absl::Status status = store_.OpenFile("one", "100", "config.json", 0).status();
  EXPECT_EQ(ReasonOf(status), "CHECKPOINT_NOT_FOUND");
  EXPECT_THAT(std::string(status.message()), HasSubstr("200"));
}

TEST_F(CheckpointStoreTest, AnExportIsServedOnceItIsRecordedAndIsNoPartOfTheCheckpoint) {
  Write(100, 3.5);
  const std::string exports = store_.ExportsFolder("one", 100);
  std::filesystem::create_directories(exports);
  std::ofstream(exports + "/a.gguf") << "exported";
  EXPECT_FALSE(store_.FindExport("one", 100, "exports/a.gguf").has_value()) << "half written";
  ASSERT_TRUE(store_.RecordExport("one", 100, {"exports/a.gguf", 8, std::string(64, 'a')}).ok());
  const auto file = store_.FindExport("one", 100, "exports/a.gguf");
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(file->size_bytes, 8);
  EXPECT_EQ(ReadAll("exports/a.gguf", 2), "ported");
  EXPECT_EQ(store_.List("one").at(0).files.size(), 2u);
  for (const char* path : {"exports/../config.json", "exports/b.gguf", "/etc/passwd", "exports/",
                           "exports/a/b", "a.gguf"}) {
    EXPECT_FALSE(store_.FindExport("one", 100, path).has_value()) << path;
  }
  std::ofstream(exports + "/a.gguf") << "cut";
  EXPECT_FALSE(store_.FindExport("one", 100, "exports/a.gguf").has_value());
}

}  // namespace
}  // namespace millrace
