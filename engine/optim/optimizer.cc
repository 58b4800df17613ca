#include "engine/optim/optimizer.h"

#include <cmath>
#include <cstddef>
#include <vector>

#include "engine/optim/update_kernel.h"

namespace millrace {
namespace {

// Threads get whole pages of every large slab.
constexpr int64_t kThreadGrain = 4096;

// Padding goes with the tensor before it.
std::vector<DecaySegment> SegmentsOf(const SlabLayout& layout, double decay) {
  std::vector<DecaySegment> segments;
  for (size_t i = 0; i < layout.tensors.size(); ++i) {
    const int64_t end = i + 1 < layout.tensors.size() ? layout.tensors[i + 1].offset : layout.count;
    const float keep = layout.tensors[i].decay ? static_cast<float>(1.0 - decay) : 1.0f;
    if (!segments.empty() && segments.back().keep == keep) {
      segments.back().end = end;
    } else {
      segments.push_back({end, keep});
    }
  }
  return segments;
}

UpdateFactors FactorsOf(OptimizerKind optimizer, const OptimizerStep& step, double gradient) {
  const OptimizerParams& params = step.params;
  UpdateFactors factors{.optimizer = optimizer,
                        .gradient = static_cast<float>(gradient),
                        .momentum = static_cast<float>(params.momentum),
                        .one_minus_beta1 = static_cast<float>(1.0 - params.beta1),
                        .beta2 = static_cast<float>(params.beta2),
                        .one_minus_beta2 = static_cast<float>(1.0 - params.beta2),
                        .step_size = static_cast<float>(step.learning_rate),
                        .inverse_sqrt_bias2 = 1,
                        .epsilon = static_cast<float>(params.epsilon),
                        .rounding = {step.seed, step.step}};
  if (optimizer == OptimizerKind::kAdamW) {
    const double t = static_cast<double>(step.step);
    factors.step_size = static_cast<float>(step.learning_rate / (1.0 - std::pow(params.beta1, t)));
    factors.inverse_sqrt_bias2 =
        static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(params.beta2, t)));
  }
  return factors;
}

}  // namespace

void UpdateUnit(HostState& state, int unit, const GradientSlab& gradient, const OptimizerStep& step,
                double gradient_factor, ThreadPool& pool) {
  const UpdateSlabs slabs{.weight_format = state.weight_format(),
                          .weights = state.weights(unit),
                          .low_halves = state.low_halves(unit),
                          .first_moment = state.first_moment(unit),
                          .second_moment = state.second_moment(unit),
                          .first_codes = state.first_codes(unit),
                          .second_codes = state.second_codes(unit),
                          .gradient = gradient.data,
                          .gradient_dtype = gradient.dtype,
                          .first_element = static_cast<uint64_t>(state.first_element(unit))};
  const UpdateFactors factors = FactorsOf(state.optimizer(), step, gradient_factor);
  const std::vector<DecaySegment> segments =
      SegmentsOf(state.layout(unit), step.learning_rate * step.params.weight_decay);
  pool.ParallelFor(state.count(unit), kThreadGrain, [&](int64_t begin, int64_t end) {
    UpdateRange(slabs, factors, segments, begin, end);
  });
}

}  // namespace millrace
