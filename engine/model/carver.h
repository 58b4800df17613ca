// Cuts one allocation into pieces. With a null base it only counts, so that one function both sizes
// and lays out a working memory.
#ifndef MILLRACE_ENGINE_MODEL_CARVER_H_
#define MILLRACE_ENGINE_MODEL_CARVER_H_

#include <cstddef>
#include <cstdint>

#include "engine/base/aligned_buffer.h"

namespace millrace {

class Carver {
 public:
  explicit Carver(void* base) : base_(static_cast<std::byte*>(base)) {}

  // Each piece begins on a cache line.
  void* Take(int64_t count, size_t element_bytes) {
    std::byte* piece = base_ == nullptr ? nullptr : base_ + used_;
    used_ += AlignUp(static_cast<size_t>(count) * element_bytes, 64);
    return piece;
  }
  float* TakeFloats(int64_t count) { return static_cast<float*>(Take(count, sizeof(float))); }

  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_CARVER_H_
