// How fast a step could be if the machine did nothing but its matrix products at full speed.
#ifndef MILLRACE_ENGINE_TRAIN_SPEED_OF_LIGHT_H_
#define MILLRACE_ENGINE_TRAIN_SPEED_OF_LIGHT_H_

#include <cstdint>

#include "absl/types/span.h"
#include "engine/base/dtype.h"
#include "engine/base/thread_pool.h"
#include "engine/data/batch.h"
#include "engine/model/model_spec.h"

namespace millrace {

// Floating-point operations that training on these micro-batches needs (NeededFlops in
// engine/schedule/needed_flops.h), document boundaries counted as they are.
double NeededFlops(const ModelSpec& model, absl::Span<const MicroBatch> micro_batches);

// Floating-point operations a second of large matrix products on this machine with these threads;
// measured once a process.
double PeakFlops(DType compute, ThreadPool& pool);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_TRAIN_SPEED_OF_LIGHT_H_
