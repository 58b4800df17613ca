// One checkpoint: a folder that is a Hugging Face model directory and, beside it, everything that a
// run needs to go on bitwise as if it had not stopped. The format is described in README.md.
//
//   MILLRACE_ASSIGN_OR_RETURN(CheckpointInfo info,
//                             WriteCheckpoint("job/checkpoints", model, state, trainer_state));
//   ...
//   MILLRACE_ASSIGN_OR_RETURN(CheckpointInfo info, ReadManifest("job/checkpoints/200"));
//   MILLRACE_RETURN_IF_ERROR(VerifyHashes(info));
//   MILLRACE_ASSIGN_OR_RETURN(TrainerState resumed, ReadTrainerState(info.folder));
//   MILLRACE_RETURN_IF_ERROR(ReadHostState(info.folder, model, pool, &state));
#ifndef MILLRACE_ENGINE_TRAIN_CHECKPOINT_H_
#define MILLRACE_ENGINE_TRAIN_CHECKPOINT_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/thread_pool.h"
#include "engine/data/data_loader.h"
#include "engine/data/tokenizer.h"
#include "engine/model/model_directory.h"
#include "engine/model/model_spec.h"
#include "engine/state/host_state.h"
#include "engine/train/run_identity.h"

namespace millrace {

// What a run is at, besides HostState. Random numbers need no state: each is a function of the
// seed and of what it is for.
struct TrainerState {
  int64_t step = 0;  // optimizer steps done
  int64_t total_tokens = 0;
  DataCursor cursor;  // of the next step
  RunIdentity identity;
  std::optional<double> evaluation_loss;  // of this step, where it was evaluated
};

// A complete checkpoint.
struct CheckpointInfo {
  std::string folder;
  int64_t step = 0;
  std::optional<double> evaluation_loss;
  std::vector<WrittenFile> files;  // all but the manifest
  int64_t size_bytes = 0;          // of `files`
};

// Writes `checkpoints`/{step}, replacing it if it exists: into a folder beside it, every file
// synced, the manifest last, renamed into place. The files of `tokenizer_folder`, where given, go
// in too, and config.json says with which tokens `tokenizer` begins and ends texts. When that fails
// (RESOURCE_EXHAUSTED on a full disk; CANCELLED, within a few megabytes, when the flag is set)
// nothing of it stays, and what was there before still is.
absl::StatusOr<CheckpointInfo> WriteCheckpoint(const std::string& checkpoints,
                                               const ModelSpec& model, const HostState& state,
                                               const TrainerState& trainer_state,
                                               const std::atomic<bool>* cancelled = nullptr,
                                               const std::string& tokenizer_folder = "",
                                               const Tokenizer* tokenizer = nullptr);

// The checkpoint in `folder`, if it is complete: its manifest is there and every file has the size
// that the manifest says. NOT_FOUND without a manifest; DATA_LOSS names the file that is not as it
// should be.
absl::StatusOr<CheckpointInfo> ReadManifest(const std::string& folder);

// DATA_LOSS names the first file whose SHA-256 is not the manifest's.
absl::Status VerifyHashes(const CheckpointInfo& info);

absl::StatusOr<TrainerState> ReadTrainerState(const std::string& folder);

// Weights and optimizer state, bit for bit as they were saved. `state` has the layouts and types of
// the one that was saved, which CheckSameRun sees to.
absl::Status ReadHostState(const std::string& folder, const ModelSpec& model, ThreadPool& pool,
                           HostState* state);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_TRAIN_CHECKPOINT_H_
