// A model from scratch.
#ifndef MILLRACE_ENGINE_STATE_INITIAL_WEIGHTS_H_
#define MILLRACE_ENGINE_STATE_INITIAL_WEIGHTS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/base/thread_pool.h"
#include "engine/model/model_spec.h"
#include "engine/state/host_state.h"

namespace millrace {

// Writes the weights that InitializeSlab draws from `seed`, one unit after the other: besides the
// state it takes the memory of the largest in f32. RESOURCE_EXHAUSTED when that is short.
absl::Status DrawWeights(const ModelSpec& model, uint64_t seed, ThreadPool& pool, HostState* state);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_STATE_INITIAL_WEIGHTS_H_
