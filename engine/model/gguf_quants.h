// The types of tensors in GGUF files: blocks of numbers, each of so many bytes.
//
// Layouts of the quantized blocks are those of ggml (ggml-common.h, struct block_q8_0 and so on);
// all numbers are little-endian, scales are binary16.
#ifndef MILLRACE_ENGINE_MODEL_GGUF_QUANTS_H_
#define MILLRACE_ENGINE_MODEL_GGUF_QUANTS_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace millrace {

// Values are the ids in files.
enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

struct GgmlTypeInfo {
  GgmlType type;
  absl::string_view name;  // as ggml says it: "Q4_K"
  int64_t block_elements;  // at most kMostBlockElements
  int64_t block_bytes;
  // blocks · block_bytes bytes to blocks · block_elements values.
  void (*decode)(const uint8_t* bytes, int64_t blocks, float* values);
  // The inverse, rounding to nearest; nullptr for types that are not written.
  void (*encode)(const float* values, int64_t blocks, uint8_t* bytes);
};

inline constexpr int64_t kMostBlockElements = 256;

// nullptr for a type that is not read.
const GgmlTypeInfo* FindGgmlType(uint32_t id);
const GgmlTypeInfo& InfoOf(GgmlType type);

// "F32, F16, ...": all types that are read, for messages.
std::string GgmlTypeNames();

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_GGUF_QUANTS_H_
