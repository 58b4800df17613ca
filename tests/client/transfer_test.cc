// Uploads and downloads that are interrupted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/lib/checkpoint_download.h"
#include "client/lib/dataset_upload.h"
#include "client/lib/errors.h"
#include "client/lib/sha256.h"
#include "tests/client/fake_daemon.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string RandomBytes(size_t size) {
  std::string bytes(size, '\0');
  uint32_t state = 1;
  for (char& c : bytes) {
    state = state * 1664525u + 1013904223u;
    c = static_cast<char>(state >> 24);
  }
  return bytes;
}

std::string HashOf(const std::string& bytes) {
  Sha256 hash;
  hash.Update(bytes);
  return hash.Finish();
}

void WriteFile(const fs::path& path, const std::string& bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string ReadFile(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

class TransferTest : public ::testing::Test {
 protected:
  TransferTest()
      : folder_(fs::path(::testing::TempDir()) /
                ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    Connection::Options options;
    options.address = daemon_.address();
    connection_ = *Connection::Open(options);
  }

  FakeDaemon daemon_;
  std::unique_ptr<Connection> connection_;
  fs::path folder_;
};

class UploadTest : public TransferTest {
 protected:
  absl::StatusOr<v1::Dataset> Upload(const fs::path& path) {
    TransferOptions options;
    options.on_progress = [this](const TransferProgress& p) { last_ = p; };
    return UploadDataset(*connection_, "plays", path.string(), options);
  }
  TransferProgress last_;
};

TEST(Sha256, IsThatOfFips180) {
  EXPECT_EQ(HashOf("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_F(UploadTest, SendsAFolderSortedAndWithoutHiddenFiles) {
  WriteFile(folder_ / "b.txt", "second");
  WriteFile(folder_ / "a" / "z.txt", "first");
  WriteFile(folder_ / "empty.txt", "");
  WriteFile(folder_ / ".hidden", "no");
  WriteFile(folder_ / ".git" / "config", "no");
  absl::StatusOr<v1::Dataset> dataset = Upload(folder_);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(dataset->state(), v1::Dataset::READY);
  std::vector<std::string> paths;
  for (const auto& file : dataset->files()) paths.push_back(file.path());
  EXPECT_THAT(paths, ElementsAre("a/z.txt", "b.txt", "empty.txt"));
  EXPECT_EQ(daemon_.dataset_bytes["a/z.txt"], "first");
  EXPECT_EQ(daemon_.dataset_bytes["b.txt"], "second");
  EXPECT_EQ(last_.phase, TransferProgress::CHECKING);
  EXPECT_EQ(last_.done_bytes, 11);
}

TEST_F(UploadTest, GoesOnAtTheCommittedByteWhenTheStreamBreaks) {
  std::string bytes = RandomBytes(5'000'000);
  WriteFile(folder_ / "text", bytes);
  daemon_.break_upload_after = {1000, 2'000'000, 500'000};
  absl::StatusOr<v1::Dataset> dataset = Upload(folder_ / "text");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(daemon_.dataset_bytes["text"], bytes);
  EXPECT_THAT(daemon_.upload_offsets, ElementsAre(0, 1000, 2'001'000, 2'501'000));
}

TEST_F(UploadTest, GoesOnWhereAnEarlierCallEnded) {
  std::string bytes = RandomBytes(3'000'000);
  WriteFile(folder_ / "text", bytes);
  daemon_.break_upload_after = {1'234'567};
  daemon_.failures["GetDataset"] = {
      MakeGrpcError(grpc::StatusCode::RESOURCE_EXHAUSTED, "DISK_FULL", "no space left")};
  EXPECT_EQ(ErrorReason(Upload(folder_ / "text").status()), "DISK_FULL");
  ASSERT_TRUE(Upload(folder_ / "text").ok());
  EXPECT_EQ(daemon_.dataset_bytes["text"], bytes);
  EXPECT_THAT(daemon_.upload_offsets, ElementsAre(0, 1'234'567));
}

TEST_F(UploadTest, SendsNothingThatIsThereAlready) {
  WriteFile(folder_ / "text", "hello");
  ASSERT_TRUE(Upload(folder_ / "text").ok());
  ASSERT_TRUE(Upload(folder_ / "text").ok());
  EXPECT_EQ(daemon_.calls["UploadDatasetFile"], 1);
  EXPECT_EQ(daemon_.calls["FinalizeDataset"], 1);
}

TEST_F(UploadTest, NamesAFileThatChangesMeanwhile) {
  WriteFile(folder_ / "text", "hello");
  daemon_.dataset.set_name("datasets/plays");
  auto* file = daemon_.dataset.add_files();
  file->set_path("text");
  file->set_size_bytes(5);
  file->set_sha256(HashOf("other"));
  absl::Status status = Upload(folder_ / "text").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("was changed while it was uploaded"));
  EXPECT_EQ(daemon_.calls["UploadDatasetFile"], 2);
}

TEST_F(UploadTest, RefusesAFileWhoseNameIsNotText) {
  WriteFile(folder_ / "x\xff.txt", "hello");
  absl::Status status = Upload(folder_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"x\\xff.txt\" is not UTF-8 text"));
  EXPECT_EQ(daemon_.calls["CreateDataset"], 0);
}

TEST_F(UploadTest, RefusesWhatHasNoFiles) {
  EXPECT_EQ(Upload(folder_ / "nowhere").status().code(), absl::StatusCode::kNotFound);
  WriteFile(folder_ / ".hidden", "x");
  EXPECT_EQ(Upload(folder_).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Upload("/dev/null").status().code(), absl::StatusCode::kInvalidArgument);
}

class DownloadTest : public TransferTest {
 protected:
  void AddFile(const std::string& path, const std::string& bytes) {
    std::lock_guard<std::mutex> lock(daemon_.mutex);
    auto* file = daemon_.checkpoint_files.add_files();
    file->set_path(path);
    file->set_size_bytes(static_cast<int64_t>(bytes.size()));
    file->set_sha256(HashOf(bytes));
    daemon_.checkpoint_bytes[path] = bytes;
  }
  absl::Status Download() {
    return DownloadCheckpoint(*connection_, "jobs/plays/checkpoints/7", target_.string(), {});
  }
  fs::path target_ = folder_ / "out";
  fs::path partial_ = folder_ / "out.partial";
};

TEST_F(DownloadTest, FetchesEveryFileAndRenamesAtTheEnd) {
  AddFile("config.json", "{}");
  AddFile("deep/model.safetensors", RandomBytes(12345));
  AddFile("empty", "");
  absl::Status status = Download();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(ReadFile(target_ / "config.json"), "{}");
  EXPECT_EQ(ReadFile(target_ / "deep/model.safetensors"), RandomBytes(12345));
  EXPECT_TRUE(fs::exists(target_ / "empty"));
  EXPECT_FALSE(fs::exists(partial_));
}

TEST_F(DownloadTest, GoesOnAtTheByteWhereTheStreamBroke) {
  AddFile("model", RandomBytes(10000));
  daemon_.break_stream_after = {3, 2, 0};
  ASSERT_TRUE(Download().ok());
  EXPECT_THAT(daemon_.download_offsets, ElementsAre(0, 3000, 5000, 5000));
  EXPECT_EQ(ReadFile(target_ / "model"), RandomBytes(10000));
}

TEST_F(DownloadTest, GoesOnWhereAnEarlierCallEnded) {
  AddFile("model", RandomBytes(10000));
  WriteFile(partial_ / "model", RandomBytes(10000).substr(0, 4321));
  ASSERT_TRUE(Download().ok());
  EXPECT_THAT(daemon_.download_offsets, ElementsAre(4321));
  EXPECT_EQ(ReadFile(target_ / "model"), RandomBytes(10000));
}

TEST_F(DownloadTest, StartsAgainOverTheRestOfAnotherCheckpoint) {
  AddFile("model", RandomBytes(10000));
  WriteFile(partial_ / "model", std::string(5000, 'x'));
  WriteFile(partial_ / "old" / "shard", "x");
  ASSERT_TRUE(Download().ok());
  EXPECT_THAT(daemon_.download_offsets, ElementsAre(5000, 0));
  EXPECT_EQ(ReadFile(target_ / "model"), RandomBytes(10000));
  EXPECT_FALSE(fs::exists(target_ / "old" / "shard"));
}

TEST_F(DownloadTest, NeverOffersAFileOfAnotherHash) {
  AddFile("model", RandomBytes(10000));
  daemon_.checkpoint_bytes["model"][77] ^= 1;
  absl::Status status = Download();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("SHA-256"));
  EXPECT_FALSE(fs::exists(target_));
}

TEST_F(DownloadTest, OverwritesNothing) {
  AddFile("model", "x");
  WriteFile(target_ / "mine", "keep");
  EXPECT_EQ(Download().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ReadFile(target_ / "mine"), "keep");
}

TEST_F(DownloadTest, WritesNothingOutsideItsFolder) {
  for (const char* path : {"../evil", "/etc/evil", "a/../../evil", "a//b", ""}) {
    {
      std::lock_guard<std::mutex> lock(daemon_.mutex);
      daemon_.checkpoint_files.Clear();
    }
    AddFile(path, "x");
    EXPECT_EQ(Download().code(), absl::StatusCode::kDataLoss) << path;
  }
  EXPECT_FALSE(fs::exists(folder_ / "evil"));
}

}  // namespace
}  // namespace millrace
