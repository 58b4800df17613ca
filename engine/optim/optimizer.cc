#include "engine/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "engine/optim/adamw_kernel.h"

namespace millrace {
namespace {

// Threads get whole pages of every slab.
constexpr int64_t kThreadGrain = 2048;

// Elements that share a decay flag; padding goes with the tensor before it.
struct Segment {
  int64_t begin, end;
  bool decay;
};

std::vector<Segment> SegmentsOf(const SlabLayout& layout) {
  std::vector<Segment> segments;
  for (size_t i = 0; i < layout.tensors.size(); ++i) {
    const TensorLayout& tensor = layout.tensors[i];
    const int64_t end = i + 1 < layout.tensors.size() ? layout.tensors[i + 1].offset : layout.count;
    if (!segments.empty() && segments.back().decay == tensor.decay) {
      segments.back().end = end;
    } else {
      segments.push_back({tensor.offset, end, tensor.decay});
    }
  }
  return segments;
}

}  // namespace

void UpdateUnit(HostState& state, int unit, const GradientSlab& gradient, const OptimizerStep& step,
                double gradient_factor, ThreadPool& pool) {
  const AdamWSlabs slabs = {
      state.weights(unit),       state.low_halves(unit), state.first_moment(unit),
      state.second_moment(unit), gradient.data,          gradient.dtype};
  const AdamWParams& adamw = step.adamw;
  const double t = static_cast<double>(step.step);
  AdamWFactors factors;
  factors.gradient = static_cast<float>(gradient_factor);
  factors.one_minus_beta1 = static_cast<float>(1.0 - adamw.beta1);
  factors.beta2 = static_cast<float>(adamw.beta2);
  factors.one_minus_beta2 = static_cast<float>(1.0 - adamw.beta2);
  factors.step_size = static_cast<float>(step.learning_rate / (1.0 - std::pow(adamw.beta1, t)));
  factors.inverse_sqrt_bias2 = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(adamw.beta2, t)));
  factors.epsilon = static_cast<float>(adamw.epsilon);
  const float keep_decaying = static_cast<float>(1.0 - step.learning_rate * adamw.weight_decay);

  const std::vector<Segment> segments = SegmentsOf(state.layout(unit));
  pool.ParallelFor(state.count(unit), kThreadGrain, [&](int64_t begin, int64_t end) {
    for (const Segment& segment : segments) {
      const int64_t first = std::max(begin, segment.begin);
      const int64_t last = std::min(end, segment.end);
      if (first >= last) continue;
      AdamWFactors mine = factors;
      mine.keep = segment.decay ? keep_decaying : 1.0f;
      AdamWUpdateRange(slabs, mine, first, last);
    }
  });
}

}  // namespace millrace
