// The weights of a model on disk as those of a run.
#ifndef MILLRACE_ENGINE_TRAIN_MODEL_WEIGHTS_H_
#define MILLRACE_ENGINE_TRAIN_MODEL_WEIGHTS_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "engine/base/thread_pool.h"
#include "engine/model/model_spec.h"
#include "engine/state/host_state.h"

namespace millrace {

// Writes all weights of `state` from the model directory or GGUF file `path`; nothing else of it
// changes. Besides the state it takes the memory of the largest tensor in f32 at most. Ends with
// what `check` says, asked every few megabytes, when that is not OK.
absl::Status ReadWeights(const std::string& path, const ModelSpec& model, HostState* state,
                         absl::FunctionRef<absl::Status()> check);

// SHA-256 of all weights, whatever file they came from: equal for equal weights of the same recipe
// and compute type.
std::string WeightsSha256(const HostState& state, ThreadPool& pool);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_TRAIN_MODEL_WEIGHTS_H_
