// An fp32 master weight in two halves of 16 bits: the high half is the value rounded half-up to
// bf16 and travels to the device; the low half, the signed difference of the bit patterns, stays on
// the host. Put together they are the fp32 value bit for bit.
//
// Rounding half-up on bit patterns is rounding half away from zero on values, so the high half is a
// nearest bf16. Magnitudes from 0x1.ffp127 (3.396e38) on round to infinity, as in IEEE 754; the
// halves still give the finite value back.
#ifndef MILLRACE_ENGINE_STATE_SPLIT_MASTER_H_
#define MILLRACE_ENGINE_STATE_SPLIT_MASTER_H_

#include <bit>
#include <cstdint>

#include "engine/base/dtype.h"

namespace millrace {

struct SplitMaster {
  BFloat16 high;
  int16_t low;
};

inline SplitMaster Split(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t high = (bits + 0x8000u) >> 16;
  return {{static_cast<uint16_t>(high)}, static_cast<int16_t>(bits - (high << 16))};
}

inline float Join(SplitMaster master) {
  const uint32_t low = static_cast<uint32_t>(static_cast<int32_t>(master.low));
  return std::bit_cast<float>((static_cast<uint32_t>(master.high.bits) << 16) + low);
}

}  // namespace millrace

#endif  // MILLRACE_ENGINE_STATE_SPLIT_MASTER_H_
