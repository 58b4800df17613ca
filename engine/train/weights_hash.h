// Which weights a run began with.
#ifndef MILLRACE_ENGINE_TRAIN_WEIGHTS_HASH_H_
#define MILLRACE_ENGINE_TRAIN_WEIGHTS_HASH_H_

#include <string>

#include "engine/base/thread_pool.h"
#include "engine/state/host_state.h"

namespace millrace {

// SHA-256 of all weights, whatever file they came from: equal for equal weights of the same recipe
// and compute type.
std::string WeightsSha256(const HostState& state, ThreadPool& pool);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_TRAIN_WEIGHTS_HASH_H_
