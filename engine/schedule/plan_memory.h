// Where the bytes of a schedule go.
#ifndef MILLRACE_ENGINE_SCHEDULE_PLAN_MEMORY_H_
#define MILLRACE_ENGINE_SCHEDULE_PLAN_MEMORY_H_

#include <vector>

#include "engine/schedule/plan.h"
#include "engine/schedule/schedule.h"

namespace millrace {

// The buffers of a training step of `plan` without its instructions; all byte counts are those of
// the schedule.
Schedule BuffersOf(const ScheduledModel& model, const Plan& plan);

// Bytes of a memory by purpose, with the padding between buffers. Device: "slots", "gradients",
// "activations", "workspace". Host: "gradients", "activations", "staging".
std::vector<MemoryItem> MemoryByPurpose(const Schedule& schedule, MemorySpace space);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_PLAN_MEMORY_H_
