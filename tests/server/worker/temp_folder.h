// A fresh folder for one test.
#ifndef MILLRACE_TESTS_SERVER_WORKER_TEMP_FOLDER_H_
#define MILLRACE_TESTS_SERVER_WORKER_TEMP_FOLDER_H_

#include <stdlib.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace millrace {

inline std::string MakeTempFolder() {
  const char* base = getenv("TEST_TMPDIR");
  std::string pattern = absl::StrCat(base != nullptr ? base : "/tmp", "/test-XXXXXX");
  return mkdtemp(pattern.data());
}

}  // namespace millrace

#endif  // MILLRACE_TESTS_SERVER_WORKER_TEMP_FOLDER_H_
