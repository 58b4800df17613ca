// Random numbers that are a function of (seed, stream, index), so that they do not depend on the
// order or the thread in which they are drawn, and need no state to be saved.
//
// Philox4x32-10: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011), section 3.
#ifndef MILLRACE_ENGINE_BASE_RANDOM_H_
#define MILLRACE_ENGINE_BASE_RANDOM_H_

#include <array>
#include <cstdint>

namespace millrace {

// Four 32-bit words for one counter value.
std::array<uint32_t, 4> Philox4x32(uint64_t key, uint64_t counter_high, uint64_t counter_low);

// The generator `seed`, `stream`: `stream` separates uses (one a tensor, an epoch, a sample).
class CounterRandom {
 public:
  CounterRandom(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}

  uint64_t Uint64(uint64_t index) const;
  // Uniform in [0, 1), 53 bits.
  double Uniform(uint64_t index) const;
  // Uniform in [0, bound), bound ≥ 1.
  uint64_t Below(uint64_t bound, uint64_t index) const;
  // Standard normal (Box-Muller).
  double Normal(uint64_t index) const;

 private:
  uint64_t seed_, stream_;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_BASE_RANDOM_H_
