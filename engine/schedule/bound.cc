#include "engine/schedule/bound.h"

#include <vector>

#include "engine/schedule/simulator.h"

namespace millrace {
namespace {

// Work with twice as much of what `bound` names.
Work Eased(Work work, const Instruction& instruction, Bound bound) {
  const bool computes = instruction.stream == StreamId::kCompute;
  switch (bound) {
    case Bound::kCompute:
      if (!computes) break;
      work[Resource::kDevice] /= 2;
      work[Resource::kHostCores] /= 2;  // where they are the device
      break;
    case Bound::kLink:
      for (Resource r : {Resource::kToDevice, Resource::kToHost, Resource::kLink}) work[r] /= 2;
      work.latency /= 2;
      break;
    case Bound::kOptimizer:
      if (instruction.opcode != Opcode::kUpdate) break;
      work[Resource::kHostMemory] /= 2;
      work[Resource::kHostCores] /= 2;
      break;
    case Bound::kHostMemory:
      work[Resource::kHostMemory] /= 2;
      break;
  }
  return work;
}

}  // namespace

absl::string_view NameOf(Bound bound) {
  switch (bound) {
    case Bound::kCompute:
      return "compute";
    case Bound::kLink:
      return "the link";
    case Bound::kHostMemory:
      return "host memory";
    case Bound::kOptimizer:
      return "the optimizer";
  }
  return "unknown";
}

Bound BoundOf(const Schedule& schedule, const CostModel& cost, bool unified) {
  Bound best = Bound::kCompute;
  double least = 0;
  // The narrower first.
  for (Bound bound : {Bound::kCompute, Bound::kLink, Bound::kOptimizer, Bound::kHostMemory}) {
    std::vector<Work> work;
    for (const Instruction& instruction : schedule.instructions) {
      work.push_back(Eased(cost.Of(instruction), instruction, bound));
    }
    const double seconds = Simulate(schedule, work, unified).seconds;
    if (bound == Bound::kCompute || seconds < least * 0.999) {
      least = seconds;
      best = bound;
    }
  }
  return best;
}

}  // namespace millrace
