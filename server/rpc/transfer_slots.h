// How many files are on their way at the same time: each takes a thread as long as it lasts.
//
//   MILLRACE_ASSIGN_OR_RETURN(const TransferSlots::Slot slot, slots_.Take());
#ifndef MILLRACE_SERVER_RPC_TRANSFER_SLOTS_H_
#define MILLRACE_SERVER_RPC_TRANSFER_SLOTS_H_

#include <atomic>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/base/errors.h"

namespace millrace {

// Thread-safe.
class TransferSlots {
 private:
  struct GiveBack {
    void operator()(std::atomic<int>* taken) const { --*taken; }
  };

 public:
  // Given back when destroyed. Must not outlive the slots.
  using Slot = std::unique_ptr<std::atomic<int>, GiveBack>;

  explicit TransferSlots(int most) : most_(most) {}

  // UNAVAILABLE BUSY, with a delay to try again after.
  absl::StatusOr<Slot> Take() {
    Slot slot(&taken_);
    if (++taken_ <= most_) return slot;
    return WithRetryDelay(
        MakeError(ErrorReason::kBusy, absl::StrCat(most_, " other files are on their way, which ",
                                                   "is the most there may be; try again later")),
        absl::Seconds(1));
  }

 private:
  const int most_;
  std::atomic<int> taken_ = 0;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_RPC_TRANSFER_SLOTS_H_
