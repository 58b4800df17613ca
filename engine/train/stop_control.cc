#include "engine/train/stop_control.h"

namespace millrace {

void StopControl::RequestStop(absl::string_view trigger) {
  absl::MutexLock lock(&mutex_);
  if (!trigger_.has_value()) trigger_ = std::string(trigger);
}

std::optional<std::string> StopControl::stop_trigger() const {
  absl::MutexLock lock(&mutex_);
  return trigger_;
}

}  // namespace millrace
