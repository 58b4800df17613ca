// Collects the trace of a range of steps and writes it as one file.
//
//   StepTracer tracer(spec.trace_steps, job_folder + "/traces");
//   if (tracer.Wants(step)) tracer.Add(step, times, runner->Trace(step));
//   if (tracer.Complete(step)) { MILLRACE_ASSIGN_OR_RETURN(TraceSaved saved, tracer.Write()); … }
#ifndef MILLRACE_ENGINE_TRAIN_STEP_TRACER_H_
#define MILLRACE_ENGINE_TRAIN_STEP_TRACER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/schedule/trace.h"
#include "engine/train/train_events.h"

namespace millrace {

// What is around a step's schedule: seconds on the clock of its events.
struct StepTimes {
  double begin = 0;        // loading its data
  double data_loaded = 0;  // its schedule
  double trained = 0;      // the updates that it left, where they are not left to the next step
  double end = 0;          // as `trained` when there were none
};

class StepTracer {
 public:
  // `steps`: first and last; none: wants nothing. `folder` is made when it is needed.
  StepTracer(std::optional<std::pair<int64_t, int64_t>> steps, std::string folder);

  bool Wants(int64_t step) const;
  // `events`: what the streams did in the step.
  void Add(int64_t step, const StepTimes& times, std::vector<TraceEvent> events);
  // `step` is the last that is wanted.
  bool Complete(int64_t step) const;
  // Writes steps-A-B.json, where A is the first step that was added: a run that was resumed within
  // the range has no trace of those before.
  absl::StatusOr<TraceSaved> Write();

 private:
  const std::optional<std::pair<int64_t, int64_t>> steps_;
  const std::string folder_;
  std::vector<TraceEvent> events_;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_TRAIN_STEP_TRACER_H_
