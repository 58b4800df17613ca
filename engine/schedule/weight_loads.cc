#include "engine/schedule/weight_loads.h"

#include <algorithm>
#include <map>

namespace millrace {

WeightLoads PlanWeightLoads(const std::vector<int>& units, int slots,
                            const std::function<bool(int unit)>& resident, bool keep) {
  struct Slot {
    int unit = -1;
    int last_use = -1;
  };
  std::vector<Slot> shared(static_cast<size_t>(slots));
  std::map<int, int> resident_slots;
  for (int unit : units) {
    if (resident(unit)) resident_slots[unit] = 0;
  }
  int next = slots;
  for (auto& [unit, slot] : resident_slots) slot = next++;

  WeightLoads plan;
  std::map<int, bool> loaded;
  for (int use = 0; use < static_cast<int>(units.size()); ++use) {
    const int unit = units[use];
    int slot = 0;
    if (const auto found = resident_slots.find(unit); found != resident_slots.end()) {
      slot = found->second;
      if (!loaded[unit]) plan.loads.push_back({unit, slot, -1});
      loaded[unit] = true;
    } else {
      auto held = keep ? std::find_if(shared.begin(), shared.end(),
                                      [&](const Slot& s) { return s.unit == unit; })
                       : shared.end();
      if (held == shared.end()) {
        held = std::min_element(shared.begin(), shared.end(), [](const Slot& a, const Slot& b) {
          return a.last_use < b.last_use;
        });
        held->unit = unit;
        slot = static_cast<int>(held - shared.begin());
        plan.loads.push_back({unit, slot, held->last_use});
      }
      held->last_use = use;
      slot = static_cast<int>(held - shared.begin());
    }
    plan.uses.push_back({slot, static_cast<int>(plan.loads.size())});
  }
  return plan;
}

bool IsResident(int unit, int count, int blocks) {
  return unit * count / blocks != (unit - 1) * count / blocks;
}

}  // namespace millrace
