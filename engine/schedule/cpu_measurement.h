// Measures how fast this machine's processor runs our ops.
#ifndef MILLRACE_ENGINE_SCHEDULE_CPU_MEASUREMENT_H_
#define MILLRACE_ENGINE_SCHEDULE_CPU_MEASUREMENT_H_

#include "engine/base/dtype.h"
#include "engine/base/thread_pool.h"
#include "engine/schedule/profile.h"

namespace millrace {

// Each op at a few sizes, the least time of some runs: what an otherwise idle machine does. Takes a
// second or two and up to half a gigabyte of memory. Memory figures are left at 0.
DeviceProfile MeasureCpu(DType compute, ThreadPool& pool);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_CPU_MEASUREMENT_H_
