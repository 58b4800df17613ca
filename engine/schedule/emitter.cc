#include "engine/schedule/emitter.h"

#include <algorithm>
#include <utility>

#include "engine/base/aligned_buffer.h"

namespace millrace {

int Emitter::AddBuffer(BufferKind kind, int64_t index, size_t bytes) {
  Buffer buffer{.kind = kind, .index = static_cast<int>(index), .bytes = bytes};
  if (bytes > 0) {
    size_t& end =
        SpaceOf(kind) == MemorySpace::kDevice ? schedule_.device_bytes : schedule_.host_bytes;
    buffer.offset = end;
    end += AlignUp(bytes, kSlabAlignment);
  }
  schedule_.buffers.push_back(buffer);
  history_.emplace_back();
  return static_cast<int>(schedule_.buffers.size()) - 1;
}

void Emitter::Emit(Instruction instruction, std::vector<Access> accesses) {
  const int index = static_cast<int>(schedule_.instructions.size());
  std::vector<int> needed;
  for (const Access& access : accesses) {
    const History& history = history_[access.buffer];
    if (history.writer != kNone) needed.push_back(history.writer);
    if (access.write) {
      needed.insert(needed.end(), history.readers.begin(), history.readers.end());
    }
  }
  // Newest first, so that a wait that others imply is not written down.
  std::sort(needed.rbegin(), needed.rend());
  needed.erase(std::unique(needed.begin(), needed.end()), needed.end());
  for (int earlier : needed) {
    if (order_.OrderedBeforeNext(schedule_, earlier, instruction.stream)) continue;
    const bool implied =
        std::any_of(instruction.waits.begin(), instruction.waits.end(),
                    [&](int wait) { return order_.Ordered(schedule_, earlier, wait); });
    if (!implied) instruction.waits.push_back(earlier);
  }
  for (const Access& access : accesses) {
    History& history = history_[access.buffer];
    if (access.write) {
      history.writer = index;
      history.readers.clear();
    } else if (history.writer != index) {
      history.readers.push_back(index);
    }
  }
  instruction.accesses = std::move(accesses);
  order_.Add(instruction);
  schedule_.instructions.push_back(std::move(instruction));
}

Schedule Emitter::Finish() && { return std::move(schedule_); }

}  // namespace millrace
