// A safetensors file: its header, and what its tensors read as.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "engine/model/safetensors.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  static const auto* folder = new FuzzFolder;
  const std::string path =
      folder->Write("model.safetensors", {reinterpret_cast<const char*>(data), size});
  const absl::StatusOr<SafetensorsReader> reader = SafetensorsReader::Open(path);
  if (!reader.ok()) {
    Require(absl::StrContains(reader.status().message(), path), "an error does not name the file");
    return 0;
  }
  for (const auto& [name, entry] : reader->tensors()) {
    if (entry.dtype == FileDType::kOther) continue;
    // Sizes have been checked: no tensor has more elements than the file has bytes.
    Require(entry.count() <= static_cast<int64_t>(size), "a tensor is larger than the file");
    std::vector<float> values(static_cast<size_t>(entry.count()));
    const absl::Status status = reader->Read(entry, 0, absl::MakeSpan(values));
    Require(status.ok(), status.message());
  }
  return 0;
}
