// How fast this machine's threads copy, update and gather.
#ifndef MILLRACE_ENGINE_SCHEDULE_HOST_RATES_H_
#define MILLRACE_ENGINE_SCHEDULE_HOST_RATES_H_

#include "engine/base/dtype.h"
#include "engine/base/thread_pool.h"
#include "engine/schedule/profile.h"

namespace millrace {

// `host` but for its memory's size, and `copy_bandwidth` of `profile`.
void MeasureHostRates(DType compute, ThreadPool& pool, DeviceProfile& profile);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_HOST_RATES_H_
