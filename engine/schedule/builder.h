// Turns a plan into schedules.
#ifndef MILLRACE_ENGINE_SCHEDULE_BUILDER_H_
#define MILLRACE_ENGINE_SCHEDULE_BUILDER_H_

#include "engine/schedule/plan.h"
#include "engine/schedule/schedule.h"

namespace millrace {

// One training step, layer-major: every micro-batch passes through a unit before the next unit is
// needed, forward then backward. With UpdateTime::kBeforeNextUpload the schedule begins with the
// updates that the step before left (`pending_update`), each just ahead of its unit's upload.
Schedule BuildStepSchedule(const ScheduledModel& model, const Plan& plan, bool pending_update);

// Loss, or the last token's logits, of one micro-batch; forward only, in the same arena.
Schedule BuildForwardSchedule(const ScheduledModel& model, const Plan& plan);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_BUILDER_H_
