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

  // Without branches, so that loops over it are vectorized.
  float ToFloat() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fffu) << 13;
    constexpr uint32_t kBias = 112u << 23, kStep = 1u << 23;  // between the exponents' biases
    // Infinity and NaN have the largest exponent in both.
    const uint32_t normal = magnitude + (magnitude >= 0x1fu << 23 ? 2 * kBias : kBias);
    // Below 2^-14 the exponent's bit is implied that a float would have.
    const uint32_t subnormal = std::bit_cast<uint32_t>(
        std::bit_cast<float>(magnitude + kBias + kStep) - std::bit_cast<float>(kBias + kStep));
    return std::bit_cast<float>(sign | (magnitude < kStep ? subnormal : normal));
  }
};
static_assert(sizeof(Float16) == 2);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_BASE_FLOAT16_H_
