// A model from files.
#ifndef MILLRACE_ENGINE_STATE_LOAD_WEIGHTS_H_
#define MILLRACE_ENGINE_STATE_LOAD_WEIGHTS_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "engine/base/thread_pool.h"
#include "engine/model/model_spec.h"
#include "engine/state/host_state.h"

namespace millrace {

// Reads the weights of the model directory or GGUF file `path` into the slabs on all threads of
// `pool`; low halves of what is bf16 there become zero, and nothing else of the state changes.
// Besides the state it takes a few MiB a thread. Ends with what `check` says, asked by all threads
// every megabyte or so, when that is not OK. Other errors are ReadModelDirectory's
// (model_directory.h). After an error the weights are unspecified.
absl::Status LoadWeights(const ModelSpec& model, const std::string& path, ThreadPool& pool,
                         HostState* state,
                         absl::FunctionRef<absl::Status()> check = absl::OkStatus);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_STATE_LOAD_WEIGHTS_H_
