// What memory a job takes, before it runs: the sum that the trainer makes when it prepares a run
// (engine/train/run_setup.cc), without taking any.
#ifndef MILLRACE_SERVER_WORKER_MEMORY_NEEDS_H_
#define MILLRACE_SERVER_WORKER_MEMORY_NEEDS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/model/model_spec.h"
#include "engine/schedule/plan.h"
#include "engine/train/train_spec.h"

namespace millrace {

// Parameters, optimizer state and gradients.
int64_t HostStateBytes(const TrainSpec& resolved, const ModelSpec& model);

// FAILED_PRECONDITION HOST_MEMORY_INSUFFICIENT or DEVICE_MEMORY_INSUFFICIENT, with the bytes that
// are missing and the field to change, when a job cannot run within its budgets or within
// `node_bytes`, with nothing else on the node.
absl::Status CheckMemory(const TrainSpec& resolved, const ModelSpec& model, const StepShape& shape,
                         int64_t node_bytes);

}  // namespace millrace

#endif  // MILLRACE_SERVER_WORKER_MEMORY_NEEDS_H_
