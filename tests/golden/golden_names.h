// The models in this folder, for tests that are made once for each.
#ifndef MILLRACE_TESTS_GOLDEN_GOLDEN_NAMES_H_
#define MILLRACE_TESTS_GOLDEN_GOLDEN_NAMES_H_

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace millrace {

inline constexpr char kGoldenRoot[] = "tests/golden/";

// The folders of models in tests/golden, in order.
inline std::vector<std::string> GoldenNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kGoldenRoot)) {
    if (std::filesystem::exists(entry.path() / "golden.safetensors")) {
      names.push_back(entry.path().filename());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace millrace

#endif  // MILLRACE_TESTS_GOLDEN_GOLDEN_NAMES_H_
