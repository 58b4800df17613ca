// How fast this machine's processor runs the device's ops.
#ifndef MILLRACE_ENGINE_SCHEDULE_OP_RATES_H_
#define MILLRACE_ENGINE_SCHEDULE_OP_RATES_H_

#include "engine/base/dtype.h"
#include "engine/base/thread_pool.h"
#include "engine/schedule/profile.h"

namespace millrace {

// Products, attention, head and passes of `profile`, each at a few sizes.
void MeasureOpRates(DType compute, ThreadPool& pool, DeviceProfile& profile);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_OP_RATES_H_
