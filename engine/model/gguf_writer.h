// Writes a GGUF file, version 3, streaming: the header first, then tensor after tensor in the order
// given. gguf_file.h reads it back.
#ifndef MILLRACE_ENGINE_MODEL_GGUF_WRITER_H_
#define MILLRACE_ENGINE_MODEL_GGUF_WRITER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/file.h"
#include "engine/model/gguf_file.h"
#include "engine/model/gguf_quants.h"
#include "engine/model/gguf_value.h"

namespace millrace {

using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;

class GgufWriter {
 public:
  // Offsets of `tensors` are ignored. INVALID_ARGUMENT names a tensor whose type is not written
  // (F32, F16, BF16 and Q8_0 are), whose rows are no whole blocks, or whose name is over 63 bytes
  // (more than llama.cpp reads); and a key or a name that is there twice.
  static absl::StatusOr<GgufWriter> Create(const std::string& path, const GgufMetadata& metadata,
                                           std::vector<GgufTensor> tensors);

  // The next elements of the tensors; any division into calls, but no call goes beyond a tensor's
  // end. INVALID_ARGUMENT names a tensor with a value that its type cannot hold.
  absl::Status Append(absl::Span<const float> values);
  // Syncs and closes. FAILED_PRECONDITION when not all elements came.
  absl::Status Finish();

  int64_t size_bytes() const { return writer_.size_bytes(); }
  // After Finish().
  const std::string& sha256() const { return writer_.sha256(); }

 private:
  GgufWriter(FileWriter writer, std::vector<GgufTensor> tensors)
      : writer_(std::move(writer)), tensors_(std::move(tensors)) {}

  absl::Status Encode(absl::Span<const float> values);

  FileWriter writer_;
  std::vector<GgufTensor> tensors_;
  size_t tensor_ = 0;           // that comes next
  int64_t done_ = 0;            // elements of it that came
  std::vector<float> pending_;  // the begin of a block whose rest has not come
  std::string encoded_;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_GGUF_WRITER_H_
