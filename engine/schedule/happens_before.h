// Which instructions are certain to be done when another starts.
#ifndef MILLRACE_ENGINE_SCHEDULE_HAPPENS_BEFORE_H_
#define MILLRACE_ENGINE_SCHEDULE_HAPPENS_BEFORE_H_

#include <array>
#include <vector>

#include "engine/schedule/schedule.h"

namespace millrace {

// A vector clock an instruction: for each stream the last of its instructions, by index in the
// schedule, that is done when this one is done. Instructions are added in issue order.
class HappensBefore {
 public:
  // The clock follows from the instruction's stream and waits.
  void Add(const Instruction& instruction);

  // `earlier` is done before `later` starts.
  bool Ordered(const Schedule& schedule, int earlier, int later) const {
    const size_t stream = static_cast<size_t>(schedule.instructions[earlier].stream);
    return earlier < later && clocks_[later][stream] >= earlier;
  }
  // `earlier` is done before the next instruction added to `stream` starts, whatever it waits for.
  bool OrderedBeforeNext(const Schedule& schedule, int earlier, StreamId stream) const {
    const int newest = last_[static_cast<size_t>(stream)];
    return newest >= 0 && (newest == earlier || Ordered(schedule, earlier, newest));
  }

 private:
  using Clock = std::array<int, kNumStreams>;
  static Clock None() {
    Clock clock;
    clock.fill(-1);
    return clock;
  }

  std::vector<Clock> clocks_;
  Clock last_ = None();  // newest instruction of each stream
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_HAPPENS_BEFORE_H_
