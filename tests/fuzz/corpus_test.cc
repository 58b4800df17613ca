// Runs a fuzz target over its corpus: what once was found stays mended.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "gtest/gtest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace millrace {
namespace {

TEST(Corpus, RunsThroughEveryFile) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(MILLRACE_CORPUS)) {
    SCOPED_TRACE(entry.path());
    const absl::StatusOr<std::string> input = ReadFile(entry.path());
    ASSERT_TRUE(input.ok()) << input.status();
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input->data()), input->size());
    ++files;
  }
  EXPECT_GT(files, 0);
}

}  // namespace
}  // namespace millrace
