// Reads the GGUF file format, versions 2 and 3, little-endian: a header with metadata (key ->
// typed value) and a table of tensors (name, shape, type, offset), then the tensors' bytes, each
// aligned. https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
//
//   MILLRACE_ASSIGN_OR_RETURN(std::shared_ptr<const GgufFile> file, GgufFile::Open(path));
//   const GgufTensor& tensor = file->tensors().at("token_embd.weight");
//   std::vector<float> values(tensor.count());
//   MILLRACE_RETURN_IF_ERROR(file->Read(tensor, 0, absl::MakeSpan(values)));
//
// Files may come from anyone: a header is believed only after every count, size, offset and shape
// in it has been checked against the file's size, and nothing is allocated by a count alone.
#ifndef MILLRACE_ENGINE_MODEL_GGUF_FILE_H_
#define MILLRACE_ENGINE_MODEL_GGUF_FILE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/model/gguf_quants.h"
#include "engine/model/gguf_value.h"

namespace millrace {

struct GgufTensor {
  std::string name;
  const GgmlTypeInfo* type = nullptr;
  std::vector<int64_t> shape;  // outermost first, [out, in]: the reverse of the file's order
  int64_t offset_bytes = 0;    // from the file's begin

  int64_t count() const {
    int64_t product = 1;
    for (int64_t extent : shape) product *= extent;
    return product;
  }
  int64_t size_bytes() const { return count() / type->block_elements * type->block_bytes; }
};

// One file, mapped into memory. Nobody may cut it short while it is open. Any thread may read.
class GgufFile {
 public:
  // INVALID_ARGUMENT names the file, and the key or the tensor where one is to blame.
  static absl::StatusOr<std::shared_ptr<const GgufFile>> Open(const std::string& path);
  ~GgufFile();
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  const std::string& path() const { return path_; }
  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  const std::map<std::string, GgufTensor, std::less<>>& tensors() const { return tensors_; }

  // nullptr where there is none.
  const GgufValue* FindValue(absl::string_view key) const;
  const GgufTensor* FindTensor(absl::string_view name) const;

  // Elements [first, first + out.size()) of a tensor of this file, in row-major order, as f32: what
  // ggml's own dequantization makes of them. OUT_OF_RANGE when the tensor has fewer.
  absl::Status Read(const GgufTensor& tensor, int64_t first, absl::Span<float> out) const;

  // The bytes of a tensor of this file, as they are stored.
  absl::string_view BytesOf(const GgufTensor& tensor) const {
    return {bytes_ + tensor.offset_bytes, static_cast<size_t>(tensor.size_bytes())};
  }

 private:
  explicit GgufFile(const std::string& path) : path_(path) {}
  absl::Status Map();

  std::string path_;
  const char* bytes_ = nullptr;
  int64_t size_bytes_ = 0;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::map<std::string, GgufTensor, std::less<>> tensors_;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_GGUF_FILE_H_
