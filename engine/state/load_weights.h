// A model from files.
#ifndef MILLRACE_ENGINE_STATE_LOAD_WEIGHTS_H_
#define MILLRACE_ENGINE_STATE_LOAD_WEIGHTS_H_

#include <string>

#include "absl/status/status.h"
#include "engine/base/thread_pool.h"
#include "engine/model/model_spec.h"
#include "engine/state/host_state.h"

namespace millrace {

// Reads the weights of the model directory or GGUF file `path` into the slabs on all threads of
// `pool`; low halves of what is bf16 there are zero. Errors are ReadModelDirectory's
// (model_directory.h), after which the weights are unspecified.
absl::Status LoadWeights(const ModelSpec& model, const std::string& path, ThreadPool& pool,
                         HostState* state);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_STATE_LOAD_WEIGHTS_H_
