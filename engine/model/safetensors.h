// The safetensors file format: 8 bytes little-endian length of a JSON header, the header (name ->
// dtype, shape, data_offsets), the tensors' bytes. https://huggingface.co/docs/safetensors
//
// Files may come from anyone: a header (safetensors_header.h) is believed only after every size,
// offset and shape in it has been checked against the file's size.
#ifndef MILLRACE_ENGINE_MODEL_SAFETENSORS_H_
#define MILLRACE_ENGINE_MODEL_SAFETENSORS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/base/dtype.h"
#include "engine/base/file.h"
#include "engine/model/safetensors_header.h"

namespace millrace {

// Reads one file. Any thread may read.
class SafetensorsReader {
 public:
  // INVALID_ARGUMENT names the file, and the tensor where one is to blame.
  static absl::StatusOr<SafetensorsReader> Open(const std::string& path);
  SafetensorsReader(SafetensorsReader&& other) noexcept;
  SafetensorsReader& operator=(SafetensorsReader&& other) noexcept;
  ~SafetensorsReader();

  // By name.
  const SafetensorsEntries& tensors() const { return tensors_; }
  const std::string& path() const { return path_; }

  // Elements [first, first + out.size()) of `entry` as f32, exactly. INVALID_ARGUMENT for kOther.
  absl::Status Read(const SafetensorsEntry& entry, int64_t first, absl::Span<float> out) const;
  // The same of an entry that is kBF16, as it is stored.
  absl::Status Read(const SafetensorsEntry& entry, int64_t first, absl::Span<BFloat16> out) const;

 private:
  SafetensorsReader() = default;

  std::string path_;
  int fd_ = -1;
  SafetensorsEntries tensors_;
};

// Writes one file, streaming: the header first, then tensor after tensor in the order given. No
// entry is kOther.
class SafetensorsWriter {
 public:
  static absl::StatusOr<SafetensorsWriter> Create(const std::string& path,
                                                  const std::vector<SafetensorsEntry>& entries);

  // The next bytes of the tensors; any division into calls.
  absl::Status Append(absl::string_view bytes) { return writer_.Append(bytes); }
  // Syncs and closes. FAILED_PRECONDITION when not all bytes came.
  absl::Status Finish();

  int64_t size_bytes() const { return writer_.size_bytes(); }
  // After Finish().
  const std::string& sha256() const { return writer_.sha256(); }

 private:
  SafetensorsWriter(FileWriter writer, int64_t expected_bytes)
      : writer_(std::move(writer)), expected_bytes_(expected_bytes) {}

  FileWriter writer_;
  int64_t expected_bytes_;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_SAFETENSORS_H_
