#include "engine/optim/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace millrace {

double LearningRateAt(const LearningRateSchedule& schedule, int64_t step) {
  const double peak = schedule.peak, ratio = schedule.final_ratio;
  const int64_t warmup = std::min(schedule.warmup_steps, schedule.steps);
  step = std::min(step, schedule.steps);
  if (step <= warmup) return peak * static_cast<double>(step) / static_cast<double>(warmup);

  const auto progress = [&](int64_t first, int64_t length) {
    return length <= 0 ? 1.0
                       : std::clamp(static_cast<double>(step - first) / static_cast<double>(length),
                                    0.0, 1.0);
  };
  const double p = progress(warmup, schedule.steps - warmup);
  switch (schedule.kind) {
    case ScheduleKind::kConstant:
      return peak;
    case ScheduleKind::kLinear:
      return peak * (1.0 - (1.0 - ratio) * p);
    case ScheduleKind::kCosine:
      return peak * (ratio + (1.0 - ratio) * 0.5 * (1.0 + std::cos(std::numbers::pi * p)));
    case ScheduleKind::kWsd: {
      if (schedule.decay_steps <= 0) return peak;
      const double decay = progress(schedule.steps - schedule.decay_steps, schedule.decay_steps);
      return peak * (1.0 - (1.0 - ratio) * decay);
    }
  }
  return peak;
}

}  // namespace millrace
