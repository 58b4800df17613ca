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
#include "engine/base/dtype.h"

namespace millrace {

struct StoredTensor {
  std::string name;          // "model.norm.weight"
  std::string file;          // path
  std::string name_in_file;  // "output_norm.weight"
  std::vector<int64_t> shape;
  // The file holds the transpose of what a model directory does.
  bool transposed = false;
  // Bytes from the file's begin, which is the order to read in.
  int64_t position = 0;
  // Elements [first, first + out.size()) in the order of `shape` as f32; any thread may call. Keeps
  // the file open. Empty where the file has them in a type that is not read.
  std::function<absl::Status(int64_t first, absl::Span<float> out)> read;
  // The same without conversion; empty where the file does not have them as bf16.
  std::function<absl::Status(int64_t first, absl::Span<BFloat16> out)> read_bf16;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_STORED_TENSOR_H_
