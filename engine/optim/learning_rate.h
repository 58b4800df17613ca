// The learning rate as a pure function of the step.
//
// With t the step counted from 1, W warmup steps, S steps in all, peak rate η and final ratio r:
//   t ≤ W:            η · t / W
//   constant:         η
//   linear:           η · (1 − (1 − r) · p),                p = (t − W) / (S − W)
//   cosine:           η · (r + (1 − r) · (1 + cos πp) / 2)    (Loshchilov & Hutter 2017)
//   wsd, D decay steps: η until S − D, then linear to r·η:  p = (t − (S − D)) / D
// so that the last step has rate r·η (η if constant).
#ifndef MILLRACE_ENGINE_OPTIM_LEARNING_RATE_H_
#define MILLRACE_ENGINE_OPTIM_LEARNING_RATE_H_

#include <cstdint>

namespace millrace {

enum class ScheduleKind : uint8_t { kConstant, kLinear, kCosine, kWsd };

struct LearningRateSchedule {
  ScheduleKind kind = ScheduleKind::kCosine;
  double peak = 3e-4;
  int64_t steps = 1;         // S
  int64_t warmup_steps = 0;  // W, at most S
  double final_ratio = 0.1;  // r, in [0, 1]
  int64_t decay_steps = 0;   // D, wsd only; at most S − W
};

// `step` in [1, steps]; beyond, the rate of the last step.
double LearningRateAt(const LearningRateSchedule& schedule, int64_t step);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPTIM_LEARNING_RATE_H_
