// Turns a plan into schedules.
#ifndef MILLRACE_ENGINE_SCHEDULE_BUILDER_H_
#define MILLRACE_ENGINE_SCHEDULE_BUILDER_H_

#include "engine/schedule/plan.h"
#include "engine/schedule/schedule.h"

namespace millrace {

// One training step: all micro-batches forward and backward through all units, in the plan's order,
// and what the host does with the gradients. With UpdateTime::kBeforeNextUpload and
// `pending_update` it makes the updates that the step before left, each just ahead of its unit's
// first upload.
Schedule BuildStepSchedule(const ScheduledModel& model, const Plan& plan, bool pending_update);

// Loss, or the last token's logits, of one micro-batch; forward only, in the same arena.
Schedule BuildForwardSchedule(const ScheduledModel& model, const Plan& plan);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_BUILDER_H_
