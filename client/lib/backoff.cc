#include "client/lib/backoff.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <random>

namespace millrace {

absl::Duration Backoff::Next(absl::Duration at_least) {
  thread_local std::minstd_rand random(std::random_device{}());
  double share = std::uniform_real_distribution<double>(0.5, 1.0)(random);
  absl::Duration wait = next_ * share;
  next_ = std::min(next_ * 2, most_);
  return std::max(wait, at_least);
}

bool WaitUnlessStopped(const std::stop_token& stop, absl::Duration wait) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock<std::mutex> lock(mutex);
  stopped.wait_for(lock, stop, absl::ToChronoNanoseconds(wait), [] { return false; });
  return !stop.stop_requested();
}

}  // namespace millrace
