// A GGUF file: its header, the config in its metadata, its tensors, a model read from it, and its
// tokenizer.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "engine/model/gguf_file.h"
#include "engine/model/gguf_tensors.h"
#include "engine/model/model_directory.h"
#include "engine/model/slab_layout.h"
#include "engine/train/model_tokenizer.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/tokenizer_check.h"

namespace millrace {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 20;  // more take time only

void ReadTensors(const std::shared_ptr<const GgufFile>& file) {
  const absl::StatusOr<std::vector<StoredTensor>> tensors = GgufTensors(file);
  if (!tensors.ok()) return;
  for (const StoredTensor& tensor : *tensors) {
    int64_t count = 1;
    for (int64_t extent : tensor.shape) count *= extent;
    std::vector<float> values(static_cast<size_t>(std::min(count, kMostElements)));
    const absl::Status status = tensor.read(count - values.size(), absl::MakeSpan(values));
    Require(status.ok(), status.message());
  }
}

void ReadModel(const std::string& path) {
  const absl::StatusOr<ModelSpec> spec = ReadModelDirectoryConfig(path);
  if (!spec.ok()) {
    Require(absl::StrContains(spec.status().message(), path), "an error does not name the file");
    return;
  }
  if (spec->num_layers > 100) return;
  const std::vector<SlabLayout> layouts = MakeSlabLayouts(*spec);
  for (const SlabLayout& layout : layouts) Require(layout.count > 0, "a slab overflows");
  ReadModelDirectory(
      *spec, layouts, path,
      [&](int64_t unit, int64_t offset, absl::Span<const float> values) {
        Require(unit >= 0 && unit < static_cast<int64_t>(layouts.size()) && offset >= 0 &&
                    offset + static_cast<int64_t>(values.size()) <= layouts[unit].count,
                "a slab is overrun");
        return absl::OkStatus();
      })
      .IgnoreError();
}

}  // namespace
}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  static const auto* folder = new FuzzFolder;
  const std::string path = folder->Write("model.gguf", {reinterpret_cast<const char*>(data), size});
  const absl::StatusOr<std::shared_ptr<const GgufFile>> file = GgufFile::Open(path);
  if (!file.ok()) {
    Require(absl::StrContains(file.status().message(), path), "an error does not name the file");
    return 0;
  }
  ReadTensors(*file);
  ReadModel(path);
  const absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = LoadModelTokenizer(path);
  if (tokenizer.ok()) CheckTokenizer(**tokenizer);
  return 0;
}
