// Runs a schedule against a profile instead of a machine.
//
//   const Simulation step = Simulate(schedule, CostModel(model, plan, profile, update),
//   plan.unified); step.seconds, step.device_idle_ratio(), step.stalls.weights, …
//
// Streams run in order and wait as the schedule says. Instructions that run at one time share each
// resource as fairly as can be: none gets more than it asks for, and what one leaves goes to the
// others (max-min fairness); an instruction goes as fast as the scarcest of its shares lets it. In
// unified mode, where the executor runs everything at once on one thread, instructions follow one
// another in the order of issue.
#ifndef MILLRACE_ENGINE_SCHEDULE_SIMULATOR_H_
#define MILLRACE_ENGINE_SCHEDULE_SIMULATOR_H_

#include <array>
#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "engine/schedule/cost.h"
#include "engine/schedule/schedule.h"
#include "engine/schedule/stalls.h"

namespace millrace {

struct Simulation {
  double seconds = 0;               // of the step
  std::vector<Interval> intervals;  // of each instruction
  double device_busy_seconds = 0;   // the compute stream runs something
  double flops = 0;                 // done, those made again included
  StepStalls stalls;
  // Seconds for which the whole of a resource was used.
  std::array<double, kNumResources> used_seconds = {};
  size_t device_peak_bytes = 0, host_peak_bytes = 0;

  double device_idle_ratio() const { return seconds > 0 ? 1 - device_busy_seconds / seconds : 0; }
  double utilization(Resource resource) const {
    return seconds > 0 ? used_seconds[static_cast<size_t>(resource)] / seconds : 0;
  }
};

// `work[i]`: of instruction i. Depends on the arguments alone.
Simulation Simulate(const Schedule& schedule, absl::Span<const Work> work, bool unified);

Simulation Simulate(const Schedule& schedule, const CostModel& cost, bool unified);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_SIMULATOR_H_
