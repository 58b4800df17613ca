#include "engine/device/cpu/link.h"

#include <algorithm>
#include <cmath>

namespace millrace {

Link::Transfer Link::Reserve(size_t bytes, int64_t ready_ns) {
  if (bytes_per_second_ <= 0) return {ready_ns, ready_ns + latency_ns_};
  absl::MutexLock lock(&mutex_);
  free_ns_ = std::max(free_ns_, static_cast<double>(ready_ns)) +
             static_cast<double>(bytes) * 1e9 / bytes_per_second_;
  const int64_t left_ns = std::llround(free_ns_);
  return {left_ns, left_ns + latency_ns_};
}

}  // namespace millrace
