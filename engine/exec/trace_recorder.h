// When each instruction of a schedule ran, as its stream saw it.
//
//   recorder.Begin(schedule);
//   for (...) {
//     ... waits ...
//     recorder.Start(stream, i);
//     ... the instruction ...
//     recorder.End(stream, i);
//   }
//   ... synchronize all streams ...
//   StepStalls stalls = AttributeStalls(schedule, recorder.intervals());
#ifndef MILLRACE_ENGINE_EXEC_TRACE_RECORDER_H_
#define MILLRACE_ENGINE_EXEC_TRACE_RECORDER_H_

#include <chrono>
#include <vector>

#include "engine/device/device.h"
#include "engine/schedule/schedule.h"
#include "engine/schedule/stalls.h"

namespace millrace {

// Costs two readings of the clock an instruction. Threads: Begin, Start and End from the one that
// issues.
class TraceRecorder {
 public:
  // A run of `schedule` begins now. What was recorded before is forgotten.
  void Begin(const Schedule& schedule);
  // Notes the time when `stream` gets here. The recorder outlives what is enqueued.
  void Start(Stream& stream, int instruction);
  void End(Stream& stream, int instruction);

  // In seconds from Begin; complete once the streams are synchronized.
  const std::vector<Interval>& intervals() const { return intervals_; }
  // Begin on the steady clock, in seconds.
  double begin_seconds() const {
    return std::chrono::duration<double>(begin_.time_since_epoch()).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  double Now() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  Clock::time_point begin_;
  std::vector<Interval> intervals_;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_EXEC_TRACE_RECORDER_H_
