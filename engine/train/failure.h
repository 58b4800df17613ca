// Why a run failed, carried by its status.
#ifndef MILLRACE_ENGINE_TRAIN_FAILURE_H_
#define MILLRACE_ENGINE_TRAIN_FAILURE_H_

#include "absl/status/status.h"

namespace millrace {

enum class FailureReason {
  kInvalid,        // spec, model or data cannot be used; the message names field and fix
  kNonFiniteLoss,  // NaN or infinite loss, gradient or weights; checkpoints stand
  kOutOfMemory,
  kDiskFull,
  kInternal,
};

// `status` with `reason` attached, in place of one it has.
absl::Status WithReason(absl::Status status, FailureReason reason);

// For work on files: RESOURCE_EXHAUSTED means that the disk is full.
absl::Status OnDisk(absl::Status status);

// The reason attached, else what the code suggests: INVALID_ARGUMENT, NOT_FOUND, OUT_OF_RANGE and
// FAILED_PRECONDITION are kInvalid, RESOURCE_EXHAUSTED is kOutOfMemory, all others kInternal.
FailureReason FailureReasonOf(const absl::Status& status);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_TRAIN_FAILURE_H_
