// The tensors of a GGUF file as those of a Hugging Face model directory.
#ifndef MILLRACE_ENGINE_MODEL_GGUF_TENSORS_H_
#define MILLRACE_ENGINE_MODEL_GGUF_TENSORS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/model/gguf_file.h"
#include "engine/model/gguf_names.h"
#include "engine/model/stored_tensor.h"

namespace millrace {

// Every parameter in `file` under its name there, with what the converter did to its values undone
// as it is read: rows of heads in order, norms without their one. Each is read in place; any thread
// may read. INVALID_ARGUMENT names a tensor that is none of the architecture's.
absl::StatusOr<std::vector<StoredTensor>> GgufTensors(std::shared_ptr<const GgufFile> file);

// The row in the file where a model directory has `row`, for heads of `width` rows.
inline int64_t InterleavedRow(int64_t row, int64_t width) {
  const int64_t place = row % width;
  return row - place + place % (width / 2) * 2 + place / (width / 2);
}
// The inverse.
inline int64_t DirectoryRow(int64_t row, int64_t width) {
  const int64_t place = row % width;
  return row - place + place % 2 * (width / 2) + place / 2;
}

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_GGUF_TENSORS_H_
