// Element types of tensors, and bfloat16.
#ifndef MILLRACE_ENGINE_BASE_DTYPE_H_
#define MILLRACE_ENGINE_BASE_DTYPE_H_

#include <bit>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace millrace {

enum class DType : uint8_t { kF32, kBF16 };

// Bytes of one element.
constexpr size_t SizeOf(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

constexpr size_t ElementBytes(int64_t count, DType dtype) {
  return static_cast<size_t>(count) * SizeOf(dtype);
}

// "f32", "bf16".
constexpr absl::string_view NameOf(DType dtype) {
  return dtype == DType::kF32 ? absl::string_view("f32") : absl::string_view("bf16");
}

// The upper half of an IEEE binary32.
struct BFloat16 {
  uint16_t bits = 0;

  // Rounds to nearest, ties to even; NaN stays NaN.
  static BFloat16 FromFloat(float value) {
    uint32_t u = std::bit_cast<uint32_t>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((u >> 16) | 0x40u)};
    u += 0x7fffu + ((u >> 16) & 1u);
    return {static_cast<uint16_t>(u >> 16)};
  }
  float ToFloat() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};
static_assert(sizeof(BFloat16) == 2);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_BASE_DTYPE_H_
