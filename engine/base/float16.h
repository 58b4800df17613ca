// IEEE binary16, as files store it; nothing computes in it.
#ifndef MILLRACE_ENGINE_BASE_FLOAT16_H_
#define MILLRACE_ENGINE_BASE_FLOAT16_H_

#include <bit>
#include <cstdint>

namespace millrace {

struct Float16 {
  uint16_t bits = 0;

  // Rounds to nearest, ties to even; what is too large becomes infinite, NaN stays NaN.
  static Float16 FromFloat(float value) {
    uint32_t u = std::bit_cast<uint32_t>(value);
    const uint32_t sign = (u >> 16) & 0x8000u;
    u &= 0x7fffffffu;
    uint32_t magnitude = 0;
    if (u > 0x7f800000u) {
      magnitude = 0x7e00u;
    } else if (u >= 0x477ff000u) {  // 65520, half a step above the largest
      magnitude = 0x7c00u;
    } else if (u < 0x38800000u) {
      // Below 2^-14 steps are 2^-24, as they are of floats at 0.5: the addition rounds.
      magnitude = std::bit_cast<uint32_t>(std::bit_cast<float>(u) + 0.5f) - 0x3f000000u;
    } else {
      magnitude = (u + 0xfffu + ((u >> 13) & 1u) - 0x38000000u) >> 13;
    }
    return {static_cast<uint16_t>(sign | magnitude)};
  }

  float ToFloat() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    const uint32_t exponent = (bits >> 10) & 0x1fu, mantissa = bits & 0x3ffu;
    if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
    if (exponent == 0) {
      const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
      return sign ? -magnitude : magnitude;
    }
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  }
};
static_assert(sizeof(Float16) == 2);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_BASE_FLOAT16_H_
