// Asks a run to end, from any thread or from a signal handler's helper thread.
#ifndef MILLRACE_ENGINE_TRAIN_STOP_CONTROL_H_
#define MILLRACE_ENGINE_TRAIN_STOP_CONTROL_H_

#include <atomic>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace millrace {

class StopControl {
 public:
  // The run finishes the step it is in, writes a checkpoint with this trigger ("PAUSE",
  // "SHUTDOWN") and returns kStopped. The first trigger counts.
  void RequestStop(absl::string_view trigger);
  // The run returns kCancelled without a checkpoint, within one micro-batch of one unit. Beats a
  // stop.
  void RequestCancel() { cancelled_.store(true, std::memory_order_release); }

  // Trigger of the stop asked for, if any.
  std::optional<std::string> stop_trigger() const;
  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }
  // For loops that look at it often.
  const std::atomic<bool>& cancel_flag() const { return cancelled_; }

 private:
  mutable absl::Mutex mutex_;
  std::optional<std::string> trigger_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> cancelled_{false};
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_TRAIN_STOP_CONTROL_H_
