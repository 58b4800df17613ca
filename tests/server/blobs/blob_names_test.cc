#include "server/blobs/blob_names.h"

#include <gtest/gtest.h>

#include <string>

namespace millrace {
namespace {

TEST(RelativePath, AcceptsPlainPaths) {
  for (const char* path : {"a", "a.txt", "plays/hamlet.txt", "a b/ü.jsonl", "..a/b..", "-"}) {
    EXPECT_EQ(ProblemWithRelativePath(path), "") << path;
  }
}

TEST(RelativePath, RefusesWhatCouldLeadOutOfAFolder) {
  for (const char* path :
       {"", "/", "/etc/passwd", "..", "../a", "a/../b", "a/..", ".", "./a", "a/", "a//b", "a\nb"}) {
    EXPECT_NE(ProblemWithRelativePath(path), "") << path;
  }
  EXPECT_NE(ProblemWithRelativePath(std::string("a\0b", 3)), "");
  EXPECT_NE(ProblemWithRelativePath(std::string(256, 'a')), "");
  EXPECT_NE(ProblemWithRelativePath(std::string(1000, 'a') + std::string(1000, '/')), "");
}

TEST(Sha256Text, IsLowerCaseHexadecimal) {
  EXPECT_EQ(ProblemWithSha256(std::string(64, 'a')), "");
  EXPECT_NE(ProblemWithSha256(std::string(63, 'a')), "");
  EXPECT_NE(ProblemWithSha256(std::string(64, 'A')), "");
  EXPECT_NE(ProblemWithSha256(""), "");
}

}  // namespace
}  // namespace millrace
