// What a device waited for, predicted or measured.
#ifndef MILLRACE_ENGINE_SCHEDULE_STALLS_H_
#define MILLRACE_ENGINE_SCHEDULE_STALLS_H_

#include "absl/types/span.h"
#include "engine/schedule/schedule.h"

namespace millrace {

// Seconds from the step's begin.
struct Interval {
  double start = 0, end = 0;

  double seconds() const { return end - start; }
};

// Seconds of a step in which the device computed nothing, by what it waited for.
struct StepStalls {
  double weights = 0;      // uploads
  double gradients = 0;    // downloads, and what the host does with gradients but updates
  double optimizer = 0;    // updates
  double activations = 0;  // layer inputs on their way to or from the host
  double data = 0;         // embedding rows, and the launch of work that nothing held up

  double total() const { return weights + gradients + optimizer + activations + data; }
};

// `intervals[i]` is when instruction i ran. Each gap between two instructions of the compute
// stream, ahead of the first and after the last, is followed back along what finished last among
// what the later one had to wait for; every part of the gap counts for the kind of instruction that
// ran then. Where no dependency explains a gap (in unified mode one thread runs everything in the
// order of issue), what was issued and ran within it does. The stalls add up to the time from the
// step's begin to its last instruction's end less what the compute stream was busy.
StepStalls AttributeStalls(const Schedule& schedule, absl::Span<const Interval> intervals);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_STALLS_H_
