#include "engine/base/json_file.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

std::string Nested(int depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(ParseJson, TakesJsonUpToADepth) {
  const auto value = ParseJson(R"({"a": [1, {"b": "[[[[\\\"{{"}]})");
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ((*value)["a"][1]["b"], "[[[[\\\"{{");
  EXPECT_TRUE(ParseJson(Nested(kMostJsonDepth)).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(ParseJson(Nested(kMostJsonDepth + 1)).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ParseJson(Nested(10'000'000)).status()));
}

TEST(ParseJson, RefusesWhatIsNotJson) {
  for (const char* text : {"", "{", "NaN", "{\"a\": Infinity}", "[1,]", "\"\xff\"", "{}{}", "\\"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseJson(text).status())) << text;
  }
}

TEST(ReadJsonFile, ErrorsNameTheFile) {
  const std::string path = ::testing::TempDir() + "/value.json";
  std::filesystem::remove(path);
  EXPECT_TRUE(absl::IsNotFound(ReadJsonFile(path).status()));
  std::ofstream(path) << "{\"a\": 1}";
  ASSERT_TRUE(ReadJsonFile(path).ok());
  EXPECT_EQ((*ReadJsonFile(path))["a"], 1);
  const absl::Status large = ReadJsonFile(path, 7).status();
  EXPECT_TRUE(absl::IsInvalidArgument(large));
  EXPECT_THAT(std::string(large.message()), HasSubstr("value.json: has 8 bytes; at most 7"));
  std::ofstream(path) << "{";
  EXPECT_THAT(std::string(ReadJsonFile(path).status().message()),
              HasSubstr("value.json: is not valid JSON"));
}

TEST(ReadJsonFile, WhatIsNoFileIsNotWaitedFor) {
  const std::string path = ::testing::TempDir() + "/pipe.json";
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(ReadJsonFile(path).status()));
}

}  // namespace
}  // namespace millrace
