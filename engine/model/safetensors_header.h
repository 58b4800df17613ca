// The header of a safetensors file: JSON, name -> dtype, shape, data_offsets.
// https://huggingface.co/docs/safetensors
//
// Read as a stream of tokens into the tensors alone, so that a header takes memory in proportion to
// what it describes, whatever else it holds and however deep that nests.
#ifndef MILLRACE_ENGINE_MODEL_SAFETENSORS_HEADER_H_
#define MILLRACE_ENGINE_MODEL_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace millrace {

// kOther: a type of the format that no parameter of ours has; it may be there but not be read.
enum class FileDType : uint8_t { kF32, kF16, kBF16, kOther };

struct SafetensorsEntry {
  std::string name;
  FileDType dtype = FileDType::kF32;
  std::vector<int64_t> shape;
  int64_t offset_bytes = 0;  // from the file's begin; set by the reader

  int64_t count() const {
    int64_t product = 1;
    for (int64_t extent : shape) product *= extent;
    return product;
  }
};

using SafetensorsEntries = std::map<std::string, SafetensorsEntry, std::less<>>;

// Bytes of an element; of the types that are read.
int64_t SizeOf(FileDType dtype);

// The tensors that `text` describes, for a file with `data_bytes` bytes of data from `data_offset`
// on, of which the tensors take each once. INVALID_ARGUMENT says "tensor "NAME" ..." where one is
// to blame.
absl::StatusOr<SafetensorsEntries> ParseSafetensorsHeader(absl::string_view text,
                                                          int64_t data_offset, int64_t data_bytes);

// The header that describes `entries`, which lie in the file in that order without gaps. None is
// kOther.
std::string WriteSafetensorsHeader(const std::vector<SafetensorsEntry>& entries);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_SAFETENSORS_HEADER_H_
