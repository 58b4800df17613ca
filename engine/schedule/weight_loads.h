// Which slot each use of a block's weights finds them in, and what is loaded when.
#ifndef MILLRACE_ENGINE_SCHEDULE_WEIGHT_LOADS_H_
#define MILLRACE_ENGINE_SCHEDULE_WEIGHT_LOADS_H_

#include <cstddef>
#include <functional>
#include <vector>

namespace millrace {

struct WeightLoad {
  int unit;
  int slot;
  // Index of the last use of what was in the slot before; -1 when there was nothing.
  int after_use;
};

struct WeightLoads {
  // For each use: the slot, and how many of the loads must have been made by then.
  struct Use {
    int slot;
    int loads;
  };
  std::vector<Use> uses;
  std::vector<WeightLoad> loads;
};

// `units`: in the order in which their weights are used. Units that are `resident` get slots of
// their own, `slots`, `slots` + 1, … in the order of their numbers; the others share slots 0 to
// `slots` − 1, of which the one that was used least recently is loaded anew. With `keep`, a use of
// what is in a slot already needs no load.
WeightLoads PlanWeightLoads(const std::vector<int>& units, int slots,
                            const std::function<bool(int unit)>& resident, bool keep);

// Whether `unit` (1 to `blocks`) is one of `count` resident ones, spread evenly so that the link
// always has a block to bring while another computes.
bool IsResident(int unit, int count, int blocks);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_WEIGHT_LOADS_H_
