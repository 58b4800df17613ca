// A tensor of a model as some file stores it, under the name that it has in a Hugging Face model
// directory: the one form in which weights are read, whatever the file's format.
#ifndef MILLRACE_ENGINE_MODEL_STORED_TENSOR_H_
#define MILLRACE_ENGINE_MODEL_STORED_TENSOR_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace millrace {

struct StoredTensor {
  std::string name;          // "model.norm.weight"
  std::string file;          // path
  std::string name_in_file;  // "output_norm.weight"
  std::vector<int64_t> shape;
  // The file holds the transpose of what a model directory does.
  bool transposed = false;
  // Elements [first, first + out.size()) in the order of `shape` as f32. Keeps the file open.
  std::function<absl::Status(int64_t first, absl::Span<float> out)> read;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_STORED_TENSOR_H_
