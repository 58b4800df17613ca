// Optimizer moments in 8 bits: a code for each element and an exponent for each block of 128.
//
// The map is non-linear and segmented as in telephony (ITU-T G.711, µ-law), relative to a block's
// power of two, 2^X (the shared exponent of the OCP Microscaling formats):
//
//                   code                           magnitude / 2^X                  up to
//   first moment    sign, 4 bits chord, 3 bits step   ((1 + s/8) · 2^c − 1) / 2^16  0.94
//   second moment   5 bits chord, 3 bits step         ((1 + s/8) · 2^c − 1) / 2^32  0.94
//
// with chord c and step s: from zero on linear, then logarithmic with eight steps an octave. Least
// nonzero magnitudes are 2^-19 and 2^-35 of 2^X, so a block keeps squares that lie a factor of
// 3e10 apart; below, a second moment that is not zero gets the least nonzero code, never zero,
// because an update divides by its root. (Dettmers et al. 2022, "8-bit Optimizers via Block-wise
// Quantization", has a code with such a range too, but scales by the block's largest magnitude.)
//
// Scaling by powers of two makes quantization idempotent: what has been decoded is encoded to the
// same code, whatever the dither, so only change is rounded. Rounding is by dither: a number in
// [0, 1), uniform over steps, is added to the position between two codes, and the sum cut off. It
// is unbiased in the value, because codes are equally spaced within an octave; rounding to nearest
// would swallow changes below half a step, such as all of β2 = 0.999.
#ifndef MILLRACE_ENGINE_STATE_QUANTIZED_MOMENT_H_
#define MILLRACE_ENGINE_STATE_QUANTIZED_MOMENT_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace millrace {

// Elements that share an exponent; slabs are whole blocks.
inline constexpr int64_t kMomentBlock = 128;

// A slab of a moment: a code an element, an exponent a block. nullptr: there is none.
struct QuantizedMoment {
  uint8_t* codes = nullptr;
  uint8_t* exponents = nullptr;
};

// The two codes, as numbers that both the definition here and the vectorized one use.
struct MomentCode {
  int octaves;       // of the map: 2^octaves · magnitude / 2^X + 1 is what has the code's bits
  uint8_t largest;   // magnitude code
  bool has_sign;     // in the uppermost bit
  bool keeps_small;  // what is not zero never becomes zero
};
inline constexpr MomentCode kFirstMomentCode = {16, 0x7f, true, false};
inline constexpr MomentCode kSecondMomentCode = {32, 0xff, false, true};

// Bits of an f32 mantissa below a code's step.
inline constexpr int kMomentCodeShift = 20;
inline constexpr uint32_t kOneBits = 0x3f800000;

// The exponent byte of a block, X + 127, from its largest magnitude: 0 where all are zero. Blocks
// whose largest is below 2^-91 share the exponent of 2^-90.
inline uint8_t MomentExponent(float largest) {
  if (!(largest > 0)) return 0;
  const uint32_t bits = std::bit_cast<uint32_t>(largest * (16.0f / 15.0f));
  return static_cast<uint8_t>(std::clamp<uint32_t>((bits >> 23) + 1, 37, 254));
}

// 2^octaves / 2^X, and its inverse; 0 for exponent 0.
inline float MomentEncodingFactor(MomentCode code, uint8_t exponent) {
  const uint32_t power = static_cast<uint32_t>(127 + code.octaves - (exponent - 127));
  return exponent == 0 ? 0.0f : std::bit_cast<float>(power << 23);
}
inline float MomentDecodingFactor(MomentCode code, uint8_t exponent) {
  const uint32_t power = static_cast<uint32_t>(exponent - code.octaves);
  return exponent == 0 ? 0.0f : std::bit_cast<float>(power << 23);
}

inline float DecodeMoment(MomentCode code, uint8_t value, uint8_t exponent) {
  const uint32_t magnitude = value & code.largest;
  const float f = std::bit_cast<float>((magnitude << kMomentCodeShift) + kOneBits);
  const float decoded = (f - 1.0f) * MomentDecodingFactor(code, exponent);
  return code.has_sign && (value & 0x80) ? -decoded : decoded;
}

// `dither` / 65536 is the number in [0, 1). The exponent is that of the value's block.
inline uint8_t EncodeMoment(MomentCode code, float value, uint8_t exponent, uint16_t dither) {
  const float f = 1.0f + std::fabs(value) * MomentEncodingFactor(code, exponent);
  const uint32_t dithered = std::bit_cast<uint32_t>(f) - kOneBits + (uint32_t{dither} << 4) + 8;
  uint32_t magnitude = std::min<uint32_t>(dithered >> kMomentCodeShift, code.largest);
  if (code.keeps_small && value > 0) magnitude = std::max(magnitude, 1u);
  return static_cast<uint8_t>(magnitude | (code.has_sign && std::signbit(value) ? 0x80 : 0));
}

}  // namespace millrace

#endif  // MILLRACE_ENGINE_STATE_QUANTIZED_MOMENT_H_
