// Waiting between tries.
#ifndef MILLRACE_CLIENT_LIB_BACKOFF_H_
#define MILLRACE_CLIENT_LIB_BACKOFF_H_

#include <stop_token>

#include "absl/time/time.h"

namespace millrace {

// Waits that double from `first` to `most`, each shortened at random by up to a half so that many
// clients do not come back at once.
class Backoff {
 public:
  Backoff(absl::Duration first, absl::Duration most) : first_(first), most_(most), next_(first) {}

  // The next wait, not less than `at_least`.
  absl::Duration Next(absl::Duration at_least = absl::ZeroDuration());
  void Reset() { next_ = first_; }

 private:
  absl::Duration first_;
  absl::Duration most_;
  absl::Duration next_;
};

// Returns after `wait`, or at once when `stop` is requested; false in the second case.
bool WaitUnlessStopped(const std::stop_token& stop, absl::Duration wait);

}  // namespace millrace

#endif  // MILLRACE_CLIENT_LIB_BACKOFF_H_
