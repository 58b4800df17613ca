// Folders of text for tests.
#ifndef MILLRACE_TESTS_ENGINE_DATA_TEXT_FILES_H_
#define MILLRACE_TESTS_ENGINE_DATA_TEXT_FILES_H_

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace millrace {

// A folder of the running test's own, empty at first.
inline std::string EmptyFolder() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  std::string folder = ::testing::TempDir() + "/" + test->test_suite_name() + "." + test->name();
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

// Makes folders on the way; returns `path`.
inline std::string WriteText(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

}  // namespace millrace

#endif  // MILLRACE_TESTS_ENGINE_DATA_TEXT_FILES_H_
