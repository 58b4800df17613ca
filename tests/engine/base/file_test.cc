#include "engine/base/file.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

std::string TestFolder() {
  const std::string folder = std::string(std::getenv("TEST_TMPDIR")) + "/" +
                             ::testing::UnitTest::GetInstance()->current_test_info()->name();
  std::filesystem::create_directories(folder);
  return folder;
}

TEST(FileTest, WhatIsWrittenIsReadBack) {
  const std::string path = TestFolder() + "/a";
  const std::string content("bytes\0and more", 14);
  ASSERT_TRUE(WriteFileAtomically(path, content).ok());
  EXPECT_EQ(*ReadFile(path), content);
  ASSERT_TRUE(WriteFileAtomically(path, "").ok());
  EXPECT_EQ(*ReadFile(path), "");
}

TEST(FileTest, ErrorsNameThePathAndTheCause) {
  const std::string path = TestFolder() + "/missing/file";
  const absl::Status read = ReadFile(path).status();
  EXPECT_EQ(read.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(read.message()), HasSubstr(path));
  EXPECT_EQ(WriteFileAtomically(path, "x").code(), absl::StatusCode::kNotFound);
}

TEST(FileTest, MakesAFolderWithAllAboveIt) {
  const std::string folder = TestFolder();
  ASSERT_TRUE(MakeFolderDurably(folder + "/a/b/c/").ok());
  EXPECT_TRUE(std::filesystem::is_directory(folder + "/a/b/c"));
  EXPECT_TRUE(MakeFolderDurably(folder + "/a/b/c").ok());
  ASSERT_TRUE(WriteFileAtomically(folder + "/file", "x").ok());
  const absl::Status status = MakeFolderDurably(folder + "/file/d");
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(folder + "/file"));
}

TEST(FileTest, HashesAreThePublishedOnes) {
  // FIPS 180-2, appendix B.1, and the empty message.
  Sha256 abc, empty;
  abc.Update("a");
  abc.Update("bc");
  EXPECT_EQ(abc.Finish(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(empty.Finish(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(FileTest, AWriterHashesAndCountsWhatItWrites) {
  const std::string path = TestFolder() + "/big";
  absl::StatusOr<FileWriter> writer = FileWriter::Create(path);
  ASSERT_TRUE(writer.ok());
  const std::string chunk(300000, 'x');
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(writer->Append(chunk).ok());
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_EQ(writer->size_bytes(), 3000000);
  EXPECT_EQ(writer->sha256(), *Sha256OfFile(path));
}

// In a process of its own, since the limit cannot be taken back.
TEST(FileTest, AFullDiskIsResourceExhaustedAndLeavesTheOldFile) {
  const std::string path = TestFolder() + "/kept";
  ASSERT_TRUE(WriteFileAtomically(path, "old").ok());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    const absl::Status status = WriteFileAtomically(path, std::string(5000, 'y'));
    _exit(status.code() == absl::StatusCode::kResourceExhausted ? 0 : 1);
  }
  int result = 0;
  ASSERT_EQ(waitpid(child, &result, 0), child);
  EXPECT_TRUE(WIFEXITED(result) && WEXITSTATUS(result) == 0);
  EXPECT_EQ(*ReadFile(path), "old");
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
}

}  // namespace
}  // namespace millrace
