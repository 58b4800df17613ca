#include "engine/train/speed_of_light.h"

#include <cstddef>
#include <map>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/schedule/needed_flops.h"

namespace millrace {

double NeededFlops(const ModelSpec& model, absl::Span<const MicroBatch> micro_batches) {
  double tokens = 0, pairs = 0, window_pairs = 0;
  for (const MicroBatch& batch : micro_batches) {
    tokens += static_cast<double>(batch.tokens());
    for (size_t i = 1; i < batch.boundaries.size(); ++i) {
      const double n = batch.boundaries[i] - batch.boundaries[i - 1];
      pairs += AttentionPairs(n, 0);
      window_pairs += AttentionPairs(n, model.window);
    }
  }
  return NeededFlops(model, tokens, pairs, window_pairs);
}

double PeakFlops(DType compute, ThreadPool& pool) {
  static absl::Mutex mutex(absl::kConstInit);
  static auto& measured = *new std::map<std::pair<DType, int>, double>();
  absl::MutexLock lock(&mutex);
  const auto [entry, is_new] = measured.try_emplace({compute, pool.threads()}, 0.0);
  if (is_new) entry->second = MeasureMatmulPeak(compute, &pool);
  return entry->second;
}

}  // namespace millrace
