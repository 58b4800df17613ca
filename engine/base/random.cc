#include "engine/base/random.h"

#include <cmath>
#include <numbers>

namespace millrace {

std::array<uint32_t, 4> Philox4x32(uint64_t key, uint64_t counter_high, uint64_t counter_low) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
  constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  std::array<uint32_t, 4> c = {
      static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
      static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = kMultiplier0 * c[0], p1 = kMultiplier1 * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return c;
}

uint64_t CounterRandom::Uint64(uint64_t index) const {
  const auto words = Philox4x32(seed_, stream_, index);
  return (static_cast<uint64_t>(words[1]) << 32) | words[0];
}

double CounterRandom::Uniform(uint64_t index) const {
  return static_cast<double>(Uint64(index) >> 11) * 0x1.0p-53;
}

uint64_t CounterRandom::Below(uint64_t bound, uint64_t index) const {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(Uint64(index)) * bound) >> 64);
}

double CounterRandom::Normal(uint64_t index) const {
  const auto words = Philox4x32(seed_, stream_, index);
  const double u = (static_cast<double>(words[0]) + 1.0) * 0x1.0p-32;  // (0, 1]
  const double v = static_cast<double>(words[1]) * 0x1.0p-32;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

}  // namespace millrace
