#include "engine/exec/trace_recorder.h"

#include <cstddef>

namespace millrace {

void TraceRecorder::Begin(const Schedule& schedule) {
  intervals_.assign(schedule.instructions.size(), {});
  begin_ = Clock::now();
}

void TraceRecorder::Start(Stream& stream, int instruction) {
  stream.RunOnHost([this, instruction] {
    intervals_[static_cast<size_t>(instruction)].start = Now();
    return absl::OkStatus();
  });
}

void TraceRecorder::End(Stream& stream, int instruction) {
  stream.RunOnHost([this, instruction] {
    intervals_[static_cast<size_t>(instruction)].end = Now();
    return absl::OkStatus();
  });
}

}  // namespace millrace
