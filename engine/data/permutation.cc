#include "engine/data/permutation.h"

#include <bit>

#include "engine/base/random.h"

namespace millrace {
namespace {

constexpr int kRounds = 6;
// Small domains are walked through too: with fewer values a network has few different orders.
constexpr int kLeastHalfBits = 4;
// Keeps the streams of shuffling apart from those of other uses of a seed.
constexpr uint64_t kStream = 0x73687566666c6500u;  // "shuffle"

}  // namespace

Permutation::Permutation(uint64_t size, uint64_t seed, uint64_t epoch)
    : size_(size), seed_(seed), epoch_(epoch), half_bits_(kLeastHalfBits) {
  const int bits = std::bit_width(size - 1);
  if ((bits + 1) / 2 > half_bits_) half_bits_ = (bits + 1) / 2;
}

uint64_t Permutation::Encrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_, right = value & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const uint64_t mixed = Philox4x32(seed_, kStream + epoch_, (round << 32) | right)[0];
    const uint64_t next = left ^ (mixed & mask);
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

uint64_t Permutation::operator()(uint64_t index) const {
  uint64_t value = index;
  do {
    value = Encrypt(value);
  } while (value >= size_);
  return value;
}

}  // namespace millrace
