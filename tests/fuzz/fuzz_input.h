// What fuzz targets share.
#ifndef MILLRACE_TESTS_FUZZ_FUZZ_INPUT_H_
#define MILLRACE_TESTS_FUZZ_FUZZ_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace millrace {

// Ends the program, as a fuzzer wants it, where what must hold does not.
inline void Require(bool holds, absl::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", std::string(what).c_str());
  std::abort();
}

// A folder of this process in memory, gone with it.
class FuzzFolder {
 public:
  FuzzFolder() {
    std::string pattern = std::filesystem::exists("/dev/shm") ? "/dev/shm" : "/tmp";
    pattern += "/millrace_fuzz.XXXXXX";
    Require(mkdtemp(pattern.data()) != nullptr, "no temporary folder");
    path_ = pattern;
  }
  ~FuzzFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  // The path of the file `name` in it, which then is `content`.
  std::string Write(absl::string_view name, absl::string_view content) const {
    const std::string file = absl::StrCat(path_, "/", name);
    std::ofstream(file, std::ios::binary) << content;
    return file;
  }

 private:
  std::string path_;
};

}  // namespace millrace

#endif  // MILLRACE_TESTS_FUZZ_FUZZ_INPUT_H_
