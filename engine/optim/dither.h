// Random numbers that the optimizer rounds with: functions of (seed, step, element of the model),
// so that results depend neither on threads nor on the width of vectors, and a resumed run has the
// same. The definitions are here; dither-inl.h makes whole vectors of them.
#ifndef MILLRACE_ENGINE_OPTIM_DITHER_H_
#define MILLRACE_ENGINE_OPTIM_DITHER_H_

#include <bit>
#include <cstdint>

#include "engine/base/random.h"

namespace millrace {

struct RoundingKey {
  uint64_t seed = 0;
  int64_t step = 0;  // counted from 1
};

// Weights. 64 elements share 8 blocks of Philox4x32-10 (engine/base/random.h), an element has half
// a word: with j = element mod 64, half j mod 2 of word j / 16 of block (j mod 16) / 2.
inline constexpr int64_t kWeightDitherGroup = 64;

// Keeps these numbers apart from all others of the same seed.
inline uint64_t WeightDitherStream(RoundingKey key) {
  return (uint64_t{1} << 62) | static_cast<uint64_t>(key.step);
}

// Uniform in [0, 65536), independent between elements and steps. Added to the bits of an f32 that
// is then cut to bf16, it rounds each way in proportion to the distance to the other: without bias.
inline uint16_t WeightDither(RoundingKey key, uint64_t element) {
  const uint64_t group = element / kWeightDitherGroup, j = element % kWeightDitherGroup;
  const auto words = Philox4x32(key.seed, WeightDitherStream(key), 8 * group + (j % 16) / 2);
  return static_cast<uint16_t>(words[j / 16] >> (16 * (j % 2)));
}

inline uint16_t RoundStochastically(float value, uint16_t dither) {
  return static_cast<uint16_t>((std::bit_cast<uint32_t>(value) + dither) >> 16);
}

// Moments. Each element has a place of its own on a circle, from a hash, and moves on by the same
// irrational rotation each step: the golden ratio's for the first moment, the plastic number's for
// the second. Over steps such a sequence fills [0, 1) more evenly than chance (Kronecker), so the
// errors of many roundings cancel instead of walking at random.
inline constexpr uint32_t kMomentRotation = 0x9e37c13f;  // 0.6180 in the upper half, 0.7549 below

// The finalizer of MurmurHash3 (Appleby).
inline uint32_t MixBits(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}

// What the hash of an element's lower 32 bits is taken with.
inline uint32_t MomentDitherKey(uint64_t seed, uint64_t element) {
  return MixBits(static_cast<uint32_t>(seed) ^
                 MixBits(static_cast<uint32_t>(seed >> 32) ^
                         MixBits(static_cast<uint32_t>(element >> 32) + 1)));
}

// The upper half is for the first moment, the lower for the second.
inline uint32_t MomentDither(RoundingKey key, uint64_t element) {
  return MixBits(static_cast<uint32_t>(element) ^ MomentDitherKey(key.seed, element)) +
         static_cast<uint32_t>(key.step) * kMomentRotation;
}

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPTIM_DITHER_H_
