// Chooses how a job's step runs: the fastest plan, by the simulator, that fits both budgets.
//
//   MILLRACE_ASSIGN_OR_RETURN(
//       PlannedStep step, PlanStep(model, shape, {.unified = false,
//                                                 .device_budget_bytes = budget,
//                                                 .profile = &profile,
//                                                 .update = UpdateWorkOf(layouts, recipe,
//                                                 dtype)}));
#ifndef MILLRACE_ENGINE_SCHEDULE_PLANNER_H_
#define MILLRACE_ENGINE_SCHEDULE_PLANNER_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/schedule/cost.h"
#include "engine/schedule/plan.h"
#include "engine/schedule/profile.h"
#include "engine/schedule/schedule.h"
#include "engine/schedule/simulator.h"
#include "engine/schedule/step_shape.h"

namespace millrace {

struct PlanRequest {
  bool unified = true;
  size_t device_budget_bytes = 0;
  // Of what the schedule itself keeps on the host (Plan::host_bytes).
  size_t host_budget_bytes = std::numeric_limits<size_t>::max();
  // Of both together, where they are the same memory.
  size_t total_budget_bytes = std::numeric_limits<size_t>::max();
  PlanChoices choices;
  // By which plans are compared.
  const DeviceProfile* profile = nullptr;
  UpdateWork update;
};

// One choice of a plan, and the best plan found with another value of it.
struct PlanAlternative {
  std::string choice;     // "order", "weight_slots", …
  std::string value;      // in words: "12 of 24 passes"
  std::string next_best;  // empty: no other fits, or the job fixed it
  double extra_seconds = 0;
  bool fixed = false;
};

struct PlannedStep {
  Plan plan;
  // A step whose predecessor has left its updates to it, if the plan defers them.
  Schedule schedule;
  Simulation simulation;
  std::vector<PlanAlternative> alternatives;
};

// INVALID_ARGUMENT, beginning with the field of the job file ("memory.plan.resident_units: …"), for
// choices that contradict the model, the shape or one another.
absl::Status CheckChoices(const PlanChoices& choices, const ScheduledModel& model,
                          const StepShape& shape);

// INVALID_ARGUMENT as CheckChoices. RESOURCE_EXHAUSTED when no plan fits: the message says by how
// much.
absl::StatusOr<PlannedStep> PlanStep(const ScheduledModel& model, const StepShape& shape,
                                     const PlanRequest& request);

// Whether any plan fits; false for choices that CheckChoices refuses. Much quicker than PlanStep.
bool AnyPlanFits(const ScheduledModel& model, const StepShape& shape, const PlanRequest& request);

// The least memory that plans within `choices` can do with.
struct LeastMemory {
  size_t device_bytes = 0;  // whatever the host has
  size_t host_bytes = 0;    // of the plans that keep to the device's budget, or to device_bytes
  // Of one plan of those: with these host_bytes, or where both are the same memory with the least
  // in all.
  size_t total_bytes = 0;
  std::vector<MemoryItem> device_memory, host_memory;
};
absl::StatusOr<LeastMemory> LeastMemoryOf(const ScheduledModel& model, const StepShape& shape,
                                          const PlanRequest& request);

// PlanStep on a MiddlingProcessor, with the optimizer `full`.
absl::StatusOr<Plan> MakePlan(const ScheduledModel& model, const StepShape& shape, bool unified,
                              size_t device_budget_bytes, const PlanChoices& choices = {});

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_PLANNER_H_
