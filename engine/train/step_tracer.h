// Collects the trace of a range of steps and writes it as one file.
//
//   StepTracer tracer(spec.trace_steps, job_folder + "/traces");
//   if (tracer.Wants(step)) tracer.Add(step, data_begin, step_begin, runner->Trace(step));
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

class StepTracer {
 public:
  // `steps`: first and last; none: wants nothing. `folder` is made when it is needed.
  StepTracer(std::optional<std::pair<int64_t, int64_t>> steps, std::string folder);

  bool Wants(int64_t step) const;
  // What the streams did in a step that began with loading its data, which took until
  // `data_loaded`, and was over at `end`: seconds on the clock of `events`.
  void Add(int64_t step, double begin, double data_loaded, double end,
           std::vector<TraceEvent> events);
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
