#include "server/blobs/dataset_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/file.h"
#include "server/base/errors.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string Hash(const std::string& content) {
  Sha256 hash;
  hash.Update(content);
  return hash.Finish();
}

BlobFile Declare(const std::string& path, const std::string& content) {
  BlobFile file;
  file.path = path;
  file.size_bytes = static_cast<int64_t>(content.size());
  file.sha256 = Hash(content);
  return file;
}

// A disk on which so many more bytes can be written.
class SmallDisk : public Disk {
 public:
  absl::StatusOr<int64_t> FreeBytes(const std::string&) override { return free_bytes; }
  absl::Status Append(int fd, absl::string_view bytes, const std::string& path) override {
    const size_t fits = std::min<size_t>(bytes.size(), room_bytes);
    room_bytes -= static_cast<int64_t>(fits);
    const absl::Status status = Disk::Append(fd, bytes.substr(0, fits), path);
    if (!status.ok() || fits == bytes.size()) return status;
    return ErrnoToStatus(ENOSPC, "write", path);
  }
  absl::Status Sync(int fd, const std::string& path) override {
    if (sync_may_go_on.valid()) {
      if (!sync_began_before.exchange(true)) sync_began.set_value();
      sync_may_go_on.wait();
    }
    return Disk::Sync(fd, path);
  }

  int64_t free_bytes = 1 << 20;
  int64_t room_bytes = 1 << 20;
  // When set, a sync takes until it is; the first one to wait says so.
  std::shared_future<void> sync_may_go_on;
  std::promise<void> sync_began;
  std::atomic<bool> sync_began_before = false;
};

class DatasetStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = absl::StrCat(std::getenv("TEST_TMPDIR"), "/datasets-XXXXXX");
    folder_ = mkdtemp(pattern.data());
    Reopen();
  }

  // As after a crash of the daemon: nothing but the disk is left.
  void Reopen() {
    store_.reset();
    BlobStore::Options options;
    options.folder = folder_;
    options.disk = &disk_;
    options.jobs_using = [this](const std::string&) { return jobs_; };
    auto store = OpenDatasets(options);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }

  absl::StatusOr<int64_t> Send(const std::string& id, const std::string& path, int64_t offset,
                               const std::string& bytes) {
    auto upload = store_->OpenUpload(id, path, offset);
    if (!upload.ok()) return upload.status();
    if (absl::Status status = (*upload)->Append(bytes); !status.ok()) return status;
    return (*upload)->Finish();
  }

  int64_t Committed(const std::string& id) {
    auto dataset = store_->Get(id);
    return dataset.ok() ? dataset->files.at(0).committed_bytes : -1;
  }

  std::string folder_;
  SmallDisk disk_;
  std::vector<std::string> jobs_;
  std::unique_ptr<BlobStore> store_;
};

TEST_F(DatasetStoreTest, BecomesReadyWhenAllFilesAreHere) {
  ASSERT_TRUE(store_
                  ->Create("plays", {Declare("b/two.txt", "world"), Declare("a.txt", "hello"),
                                     Declare("empty.txt", "")})
                  .ok());
  EXPECT_EQ(*Send("plays", "a.txt", 0, "hello"), 5);
  EXPECT_EQ(*Send("plays", "b/two.txt", 0, "world"), 5);

  auto ready = store_->Finalize("plays");
  ASSERT_TRUE(ready.ok()) << ready.status();
  EXPECT_TRUE(ready->ready);
  EXPECT_EQ(DocumentCount(*ready), 2) << "the empty file is no document";
  EXPECT_EQ(ready->size_bytes, 10);
  EXPECT_EQ(*ReadFile(store_->FilesFolder("plays") + "/b/two.txt"), "world");

  Reopen();
  auto again = store_->Get("plays");
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->ready);
  EXPECT_EQ(DocumentCount(*again), 2);
  EXPECT_EQ(again->files.size(), 3);
  EXPECT_EQ(absl::ToUnixNanos(again->create_time), absl::ToUnixNanos(ready->create_time));
  EXPECT_TRUE(store_->Finalize("plays").ok()) << "finalizing again changes nothing";
}

TEST_F(DatasetStoreTest, CreateIsIdempotentForTheSameFilesOnly) {
  const std::vector<BlobFile> files = {Declare("a.txt", "hello"), Declare("b.txt", "world")};
  ASSERT_TRUE(store_->Create("plays", files).ok());
  ASSERT_TRUE(Send("plays", "a.txt", 0, "hel").ok());
  auto again = store_->Create("plays", {files[1], files[0]});
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->files[0].committed_bytes, 3);
  EXPECT_EQ(ReasonOf(store_->Create("plays", {Declare("a.txt", "other")}).status()), "ID_TAKEN");
}

TEST_F(DatasetStoreTest, RefusesDeclarationsThatCannotBeStored) {
  const auto refusal = [&](std::vector<BlobFile> files) {
    return store_->Create("plays", std::move(files)).status();
  };
  EXPECT_THAT(std::string(refusal({}).message()), HasSubstr("dataset.files: is empty"));
  EXPECT_THAT(std::string(refusal({Declare("../etc/passwd", "x")}).message()),
              HasSubstr("dataset.files[0].path: `../etc/passwd` has a part . or .."));
  EXPECT_THAT(std::string(refusal({Declare("ü\nb", "x")}).message()),
              HasSubstr("`ü\\nb` has a control character"));
  EXPECT_THAT(std::string(refusal({Declare("a", "x"), Declare("a", "x")}).message()),
              HasSubstr("declared twice"));
  EXPECT_THAT(std::string(refusal({Declare("a", "x"), Declare("a/b", "x")}).message()),
              HasSubstr("both a file and the folder"));
  EXPECT_THAT(std::string(refusal({Declare("a", "")}).message()), HasSubstr("empty"));
  BlobFile bad_hash = Declare("a", "x");
  bad_hash.sha256 = "XYZ";
  EXPECT_THAT(std::string(refusal({bad_hash}).message()), HasSubstr("dataset.files[0].sha256"));
  BlobFile bad_size = Declare("a", "x");
  bad_size.size_bytes = -1;
  EXPECT_EQ(ReasonOf(refusal({bad_size})), "DATASET_INVALID");
  EXPECT_FALSE(store_->Create("No Id", {Declare("a", "x")}).ok());
  EXPECT_TRUE(store_->List("", 10).empty());
}

TEST_F(DatasetStoreTest, ResumesAtWhatIsOnDiskAfterACrash) {
  ASSERT_TRUE(store_->Create("plays", {Declare("a.txt", "hello world")}).ok());
  {
    auto upload = store_->OpenUpload("plays", "a.txt", 0);
    ASSERT_TRUE(upload.ok());
    ASSERT_TRUE((*upload)->Append("hello").ok());
  }
  Reopen();
  EXPECT_EQ(Committed("plays"), 5);

  const absl::Status mismatch = Send("plays", "a.txt", 4, "o world").status();
  EXPECT_EQ(ReasonOf(mismatch), "OFFSET_MISMATCH");
  EXPECT_THAT(std::string(mismatch.message()), HasSubstr("from 5 on"));
  EXPECT_EQ(*Send("plays", "a.txt", 5, " world"), 11);
  EXPECT_TRUE(store_->Finalize("plays").ok());
}

TEST_F(DatasetStoreTest, CompletesAFileWhoseLastByteCameJustBeforeACrash) {
  ASSERT_TRUE(store_->Create("plays", {Declare("a.txt", "hello")}).ok());
  {
    auto upload = store_->OpenUpload("plays", "a.txt", 0);
    ASSERT_TRUE(upload.ok());
    ASSERT_TRUE((*upload)->Append("hello").ok());
  }
  Reopen();
  EXPECT_EQ(Committed("plays"), 5);
  EXPECT_TRUE(store_->Finalize("plays").ok());
}

TEST_F(DatasetStoreTest, StartsAFileAgainWhoseHashIsWrong) {
  ASSERT_TRUE(store_->Create("plays", {Declare("a.txt", "hello")}).ok());
  const absl::Status status = Send("plays", "a.txt", 0, "hellO").status();
  EXPECT_EQ(ReasonOf(status), "CHECKSUM_MISMATCH");
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Committed("plays"), 0);
  EXPECT_EQ(*Send("plays", "a.txt", 0, "hello"), 5);
}

TEST_F(DatasetStoreTest, FindsAPartThatWasDamagedOnDisk) {
  ASSERT_TRUE(store_->Create("plays", {Declare("a.txt", "hello")}).ok());
  ASSERT_TRUE(Send("plays", "a.txt", 0, "hel").ok());
  std::ofstream(folder_ + "/plays/parts/a.txt") << "HEL";
  Reopen();
  EXPECT_EQ(ReasonOf(Send("plays", "a.txt", 3, "lo").status()), "CHECKSUM_MISMATCH");
}

TEST_F(DatasetStoreTest, RefusesMoreBytesThanWereDeclared) {
  ASSERT_TRUE(store_->Create("plays", {Declare("a.txt", "hello")}).ok());
  EXPECT_EQ(ReasonOf(Send("plays", "a.txt", 0, "hello!").status()), "DATASET_INVALID");
  EXPECT_EQ(Committed("plays"), 0);
  ASSERT_TRUE(Send("plays", "a.txt", 0, "hello").ok());
  EXPECT_EQ(ReasonOf(Send("plays", "a.txt", 5, "!").status()), "DATASET_INVALID");
  EXPECT_EQ(*Send("plays", "a.txt", 5, ""), 5) << "nothing more to send is no error";
}

TEST_F(DatasetStoreTest, KeepsWhatWasWrittenBeforeTheDiskWasFull) {
  ASSERT_TRUE(store_->Create("plays", {Declare("a.txt", "hello world")}).ok());
  disk_.room_bytes = 7;
  const absl::Status status = Send("plays", "a.txt", 0, "hello world").status();
  EXPECT_EQ(ReasonOf(status), "DISK_FULL");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Committed("plays"), 7);
  disk_.room_bytes = 100;
  EXPECT_EQ(*Send("plays", "a.txt", 7, "orld"), 11);
  EXPECT_TRUE(store_->Finalize("plays").ok());
}

TEST_F(DatasetStoreTest, RefusesAtOnceWhatCannotFit) {
  disk_.free_bytes = 12;
  ASSERT_TRUE(store_->Create("one", {Declare("a.txt", "12345678")}).ok());
  const absl::Status status = store_->Create("two", {Declare("a.txt", "12345")}).status();
  EXPECT_EQ(ReasonOf(status), "DISK_FULL") << "8 of the 12 free bytes are for the first";
  EXPECT_TRUE(store_->Create("three", {Declare("a.txt", "1234")}).ok());
}

TEST_F(DatasetStoreTest, LastUploadOfAFileWins) {
  ASSERT_TRUE(store_->Create("plays", {Declare("a.txt", "hello world")}).ok());
  auto first = store_->OpenUpload("plays", "a.txt", 0);
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE((*first)->Append("hello").ok());
  auto second = store_->OpenUpload("plays", "a.txt", 5);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ((*first)->Append(" WORLD").code(), absl::StatusCode::kAborted);
  ASSERT_TRUE((*second)->Append(" world").ok());
  EXPECT_EQ((*first)->Finish().status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(*(*second)->Finish(), 11);
}

TEST_F(DatasetStoreTest, NamesTheFileThatIsMissingBytes) {
  ASSERT_TRUE(store_->Create("plays", {Declare("a.txt", "hello"), Declare("b.txt", "world")}).ok());
  ASSERT_TRUE(Send("plays", "a.txt", 0, "hello").ok());
  ASSERT_TRUE(Send("plays", "b.txt", 0, "wo").ok());
  const absl::Status status = store_->Finalize("plays").status();
  EXPECT_EQ(ReasonOf(status), "UPLOAD_INCOMPLETE");
  EXPECT_THAT(std::string(status.message()), HasSubstr("b.txt: 2 of 5 bytes"));
}

TEST_F(DatasetStoreTest, RefusesContentThatIsNoTextAndNamesThePlace) {
  const std::map<std::string, std::pair<std::string, std::string>> cases = {
      {"binary", {"a/b.txt", std::string("he\0lo", 5)}},
      {"no-utf8", {"a/b.txt", "he\xfflo"}},
      {"no-json", {"a/b.jsonl", "{\"text\": \"one\"}\nhello\n"}},
      {"no-text", {"a/b.jsonl", "{\"text\": \"one\"}\n{\"texts\": \"two\"}\n"}},
      {"no-document", {"a/b.jsonl", "\n\n"}},
  };
  for (const auto& [id, file] : cases) {
    const auto& [path, content] = file;
    ASSERT_TRUE(store_->Create(id, {Declare(path, content)}).ok());
    ASSERT_TRUE(Send(id, path, 0, content).ok());
    const absl::Status status = store_->Finalize(id).status();
    EXPECT_EQ(ReasonOf(status), "DATASET_INVALID") << id;
    if (id != "no-document") {
      EXPECT_THAT(std::string(status.message()), HasSubstr(path)) << id;
    }
    if (path == "a/b.jsonl" && id != "no-document") {
      EXPECT_THAT(std::string(status.message()), HasSubstr("a/b.jsonl:2")) << id;
    }
    // The corrected file has the same id.
    EXPECT_EQ(ReasonOf(store_->Get(id).status()), "DATASET_NOT_FOUND") << id;
    ASSERT_TRUE(store_->Create(id, {Declare("a.txt", "hello")}).ok());
    ASSERT_TRUE(Send(id, "a.txt", 0, "hello").ok());
    EXPECT_TRUE(store_->Finalize(id).ok()) << id;
  }
}

TEST_F(DatasetStoreTest, NamesWhatIsNotThere) {
  EXPECT_EQ(ReasonOf(store_->Get("plays").status()), "DATASET_NOT_FOUND");
  EXPECT_EQ(ReasonOf(store_->Finalize("plays").status()), "DATASET_NOT_FOUND");
  EXPECT_EQ(ReasonOf(store_->Delete("plays")), "DATASET_NOT_FOUND");
  EXPECT_EQ(ReasonOf(Send("plays", "a", 0, "x").status()), "DATASET_NOT_FOUND");
  ASSERT_TRUE(store_->Create("plays", {Declare("a", "x")}).ok());
  EXPECT_EQ(ReasonOf(Send("plays", "../plays/parts/a", 0, "x").status()), "FILE_NOT_FOUND");
}

TEST_F(DatasetStoreTest, ListsInOrderFromAnId) {
  for (const char* id : {"c", "a", "b"}) {
    ASSERT_TRUE(store_->Create(id, {Declare("f", "x")}).ok());
  }
  const auto ids = [&](const std::string& after, int limit) {
    std::string text;
    for (const StoredBlob& dataset : store_->List(after, limit)) text += dataset.id;
    return text;
  };
  EXPECT_EQ(ids("", 10), "abc");
  EXPECT_EQ(ids("", 2), "ab");
  EXPECT_EQ(ids("b", 10), "c");
}

TEST_F(DatasetStoreTest, DeletesOnlyWhatNoJobNeeds) {
  ASSERT_TRUE(store_->Create("plays", {Declare("a.txt", "hello")}).ok());
  auto upload = store_->OpenUpload("plays", "a.txt", 0);
  ASSERT_TRUE(upload.ok());
  jobs_ = {"jobs/one"};
  const absl::Status in_use = store_->Delete("plays");
  EXPECT_EQ(ReasonOf(in_use), "IN_USE");
  EXPECT_THAT(std::string(in_use.message()), HasSubstr("jobs/one"));

  jobs_.clear();
  ASSERT_TRUE(store_->Delete("plays").ok());
  EXPECT_EQ(ReasonOf((*upload)->Append("hello")), "DATASET_NOT_FOUND");
  EXPECT_EQ(ReasonOf((*upload)->Finish().status()), "DATASET_NOT_FOUND");
  EXPECT_TRUE(fs::is_empty(folder_));
  EXPECT_TRUE(store_->Create("plays", {Declare("a.txt", "other")}).ok()) << "the id is free again";
}

TEST_F(DatasetStoreTest, ClearsAwayWhatACrashLeftHalfDone) {
  fs::create_directories(folder_ + "/.creating-a");
  fs::create_directories(folder_ + "/.deleting-b/files");
  Reopen();
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(DatasetStoreTest, AnUploadThatComesTooLateBringsNoFolderBack) {
  auto slot = std::make_shared<FileSlot>();
  slot->kind = &kDatasetKind;
  slot->declared = Declare("a.txt", "hello");
  slot->part_path = folder_ + "/plays/parts/a.txt";
  slot->final_path = folder_ + "/plays/files/a.txt";
  slot->deleted = true;
  EXPECT_EQ(ReasonOf(FileUpload::Open(slot, 0, &disk_).status()), "DATASET_NOT_FOUND");
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(DatasetStoreTest, OthersGoOnWhileADeletionWaitsForTheDisk) {
  ASSERT_TRUE(store_->Create("plays", {Declare("a.txt", "hello"), Declare("b.txt", "world")}).ok());
  auto upload = store_->OpenUpload("plays", "a.txt", 0);
  ASSERT_TRUE(upload.ok());
  ASSERT_TRUE((*upload)->Append("hello").ok());
  std::promise<void> go_on;
  disk_.sync_may_go_on = go_on.get_future().share();
  auto finished = std::async(std::launch::async, [&] { return (*upload)->Finish().status(); });
  disk_.sync_began.get_future().wait();
  auto deleted = std::async(std::launch::async, [&] { return store_->Delete("plays"); });
  // Until then the deletion may not have begun.
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (store_->OpenUpload("plays", "b.txt", 0).ok() && absl::Now() < deadline) {
  }
  EXPECT_TRUE(store_->Create("other", {Declare("a.txt", "hello")}).ok());
  EXPECT_EQ(store_->List("", 10).size(), 2) << "still waiting";
  go_on.set_value();
  finished.wait();
  EXPECT_TRUE(deleted.get().ok());
  EXPECT_FALSE(fs::exists(folder_ + "/plays"));
}

TEST_F(DatasetStoreTest, LeavesADamagedFolderAloneAndServesTheOthers) {
  ASSERT_TRUE(store_->Create("plays", {Declare("a.txt", "hello")}).ok());
  ASSERT_TRUE(store_->Create("poems", {Declare("a.txt", "hello")}).ok());
  std::ofstream(folder_ + "/plays/manifest.json") << "{";
  fs::create_directories(folder_ + "/novels/parts");
  Reopen();
  ASSERT_EQ(store_->List("", 10).size(), 1);
  EXPECT_EQ(store_->List("", 10)[0].id, "poems");
  const absl::Status taken = store_->Create("novels", {Declare("a.txt", "hello")}).status();
  EXPECT_EQ(ReasonOf(taken), "ID_TAKEN");
  EXPECT_THAT(std::string(taken.message()), HasSubstr(folder_ + "/novels"));
  EXPECT_TRUE(fs::exists(folder_ + "/plays/manifest.json"));
}

}  // namespace
}  // namespace millrace
