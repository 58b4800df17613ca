// A random order of [0, size) that is a function and needs no memory: a Feistel network on the next
// power of four with cycle walking (Black & Rogaway, "Ciphers with Arbitrary Finite Domains", 2002,
// section 4), its rounds keyed by Philox.
#ifndef MILLRACE_ENGINE_DATA_PERMUTATION_H_
#define MILLRACE_ENGINE_DATA_PERMUTATION_H_

#include <cstdint>

namespace millrace {

class Permutation {
 public:
  // `size` ≥ 1, below 2^62. Each (seed, epoch) is another order.
  Permutation(uint64_t size, uint64_t seed, uint64_t epoch);

  // The element at place `index` of the order; `index` < size.
  uint64_t operator()(uint64_t index) const;

 private:
  uint64_t Encrypt(uint64_t value) const;

  uint64_t size_, seed_, epoch_;
  int half_bits_;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_PERMUTATION_H_
