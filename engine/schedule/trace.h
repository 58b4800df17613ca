// What ran when on each stream, predicted or measured, as Perfetto and chrome://tracing read it.
//
//   std::vector<TraceEvent> events = MakeTraceEvents(schedule, intervals, /*step=*/10);
//   WriteFile("steps-10-10.json", TraceJson(events));
//
// Format: "Trace Event Format" (Google, the JSON that Chrome's tracing exports), complete events of
// one process with a thread a track.
#ifndef MILLRACE_ENGINE_SCHEDULE_TRACE_H_
#define MILLRACE_ENGINE_SCHEDULE_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "engine/schedule/schedule.h"
#include "engine/schedule/stalls.h"

namespace millrace {

struct TraceEvent {
  std::string track;  // "upload", "compute", …
  std::string name;   // "block_forward", …
  // Seconds, all of one trace from the same begin.
  double start = 0, end = 0;
  // Shown where they are known.
  int64_t step = 0;
  int unit = kNone, micro_batch = kNone;
  size_t bytes = 0;
  double flops = 0;
};

// One event an instruction, on the track of its stream; copies with their bytes. Times are those of
// `intervals` and `begin` added.
std::vector<TraceEvent> MakeTraceEvents(const Schedule& schedule,
                                        absl::Span<const Interval> intervals, int64_t step = 0,
                                        double begin = 0);

// Tracks are in the order in which they first appear. The earliest event is at 0.
std::string TraceJson(absl::Span<const TraceEvent> events);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_TRACE_H_
