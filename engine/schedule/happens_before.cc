#include "engine/schedule/happens_before.h"

#include <algorithm>

namespace millrace {

void HappensBefore::Add(const Instruction& instruction) {
  const size_t stream = static_cast<size_t>(instruction.stream);
  Clock clock = None();
  const auto merge = [&](int other) {
    for (size_t s = 0; s < clock.size(); ++s) clock[s] = std::max(clock[s], clocks_[other][s]);
  };
  if (last_[stream] >= 0) merge(last_[stream]);
  for (int wait : instruction.waits) merge(wait);
  clock[stream] = static_cast<int>(clocks_.size());
  last_[stream] = clock[stream];
  clocks_.push_back(clock);
}

}  // namespace millrace
