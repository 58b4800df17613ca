// Tools for measuring how long a piece of work takes.
#ifndef MILLRACE_ENGINE_SCHEDULE_TIMING_H_
#define MILLRACE_ENGINE_SCHEDULE_TIMING_H_

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "engine/base/aligned_buffer.h"
#include "engine/base/dtype.h"
#include "engine/base/thread_pool.h"

namespace millrace {

// Seconds of a typical call, after one that warms up: the median of a few, fewer where they are
// long. `prepare` comes ahead of each and does not count.
double TypicalSeconds(
    const std::function<void()>& call, const std::function<void()>& prepare = [] {});

// Writes the lines of `bytes` bytes back to memory and out of the caches, where we know how.
void Evict(const void* data, size_t bytes);

// Memory to measure in; empty where the system has none.
AlignedBuffer MeasurementMemory(size_t bytes);

// Memory that is gone through again and again, more of it than of a core's own caches, filled with
// numbers of ordinary size: zeros and denormals have times of their own.
class MeasurementRing {
 public:
  MeasurementRing(DType type, ThreadPool& pool);

  // At most the ring's size, 64 MiB.
  void* Take(size_t bytes);

  // What was taken since is in no cache, as a step's weights are when their turn comes.
  void EvictTaken();

 private:
  AlignedBuffer memory_;
  size_t at_ = 0;
  std::vector<std::pair<const void*, size_t>> taken_;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_TIMING_H_
