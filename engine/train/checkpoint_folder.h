// The checkpoints of a run: which there are, and which stay.
#ifndef MILLRACE_ENGINE_TRAIN_CHECKPOINT_FOLDER_H_
#define MILLRACE_ENGINE_TRAIN_CHECKPOINT_FOLDER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/train/checkpoint.h"

namespace millrace {

// Complete checkpoints of the folder `checkpoints`, newest first; none where there is no folder.
std::vector<CheckpointInfo> ListCheckpoints(const std::string& checkpoints);

// The newest checkpoint that is whole to the last byte (hashes are checked); nullopt when there is
// none at all. Damaged ones newer than it are passed over and told to `warn`; when all are damaged,
// DATA_LOSS of the newest.
absl::StatusOr<std::optional<CheckpointInfo>> NewestIntactCheckpoint(
    const std::string& checkpoints, absl::FunctionRef<void(absl::string_view)> warn);

// Removes what an interrupted write or removal left, and brings back a checkpoint whose replacement
// did not come into its place. Not while one is under way.
absl::Status RemoveLeftovers(const std::string& checkpoints);

struct Retention {
  int64_t keep_last = 2;  // newest, at least 1
  int64_t keep_best = 1;  // of lowest evaluation loss, besides; the older one where equal
};

// The steps to remove of `complete`.
std::vector<int64_t> StepsToRemove(const std::vector<CheckpointInfo>& complete,
                                   const Retention& retention);

// Removes the complete checkpoints that `retention` does not keep. Each is out of sight at once.
absl::Status ApplyRetention(const std::string& checkpoints, const Retention& retention);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_TRAIN_CHECKPOINT_FOLDER_H_
