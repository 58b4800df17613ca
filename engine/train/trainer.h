// Runs one training job in one process, from its data to its last checkpoint.
//
//   StopControl stop;   // another thread may call stop.RequestStop("PAUSE")
//   absl::StatusOr<TrainResult> result = Train(spec, job_folder, observer, stop);
//   if (!result.ok()) Report(FailureReasonOf(result.status()), result.status().message());
//
// In `job_folder` it makes and owns:
//   prepared/            the tokenized data
//   checkpoints/{step}/  checkpoints (README.md)
//   traces/              what the streams did in the steps of the job's trace
// A run that finds complete checkpoints goes on from the newest, bitwise as if it had never been
// interrupted; a spec that would change the numbers is refused (FAILED_PRECONDITION, naming the
// field). Holding off a second run in the same folder is the caller's business.
#ifndef MILLRACE_ENGINE_TRAIN_TRAINER_H_
#define MILLRACE_ENGINE_TRAIN_TRAINER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/train/failure.h"
#include "engine/train/stop_control.h"
#include "engine/train/train_events.h"
#include "engine/train/train_spec.h"

namespace millrace {

struct TrainResult {
  enum class Outcome {
    kSucceeded,  // all steps done, the final checkpoint is complete
    kStopped,    // as asked; a checkpoint of `step` is complete (none is needed for step 0)
    kCancelled,  // as asked; nothing was saved
  };
  Outcome outcome = Outcome::kSucceeded;
  int64_t step = 0;  // optimizer steps done
};

// Blocks until the run ends. `spec` need be neither valid nor resolved. Errors carry their reason
// (FailureReasonOf).
absl::StatusOr<TrainResult> Train(const TrainSpec& spec, const std::string& job_folder,
                                  TrainObserver& observer, StopControl& stop);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_TRAIN_TRAINER_H_
