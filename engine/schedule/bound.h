// What keeps a step from being faster.
#ifndef MILLRACE_ENGINE_SCHEDULE_BOUND_H_
#define MILLRACE_ENGINE_SCHEDULE_BOUND_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "engine/schedule/cost.h"
#include "engine/schedule/schedule.h"

namespace millrace {

enum class Bound : uint8_t { kCompute, kLink, kHostMemory, kOptimizer };
// "compute", "the link", "host memory", "the optimizer".
absl::string_view NameOf(Bound bound);

// That of which twice as much would shorten the step most, as the simulator says; of two that do as
// much, the narrower.
Bound BoundOf(const Schedule& schedule, const CostModel& cost, bool unified);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_BOUND_H_
