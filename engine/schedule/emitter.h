// Adds instructions to a schedule, and works out from their operands what each must wait for.
#ifndef MILLRACE_ENGINE_SCHEDULE_EMITTER_H_
#define MILLRACE_ENGINE_SCHEDULE_EMITTER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/schedule/happens_before.h"
#include "engine/schedule/schedule.h"

namespace millrace {

class Emitter {
 public:
  // Buffers are placed in the order in which they are added, each at an address of its own: memory
  // is shared by using a buffer again, never by addresses.
  int AddBuffer(BufferKind kind, int64_t index, size_t bytes);
  const Buffer& buffer(int index) const { return schedule_.buffers[index]; }

  // Waits for the last write of whatever the instruction reads, and for all uses of whatever it
  // writes; not for what other waits, or its stream, imply.
  void Emit(Instruction instruction, std::vector<Access> accesses);

  Schedule Finish() &&;

 private:
  // What happened to a buffer last.
  struct History {
    int writer = kNone;
    std::vector<int> readers;  // since then
  };

  Schedule schedule_;
  HappensBefore order_;
  std::vector<History> history_;  // one a buffer
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_EMITTER_H_
