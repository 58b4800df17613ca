#include "engine/train/speed_of_light.h"

#include <cstddef>
#include <map>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "engine/ops/cpu/cpu_ops.h"

namespace millrace {

double NeededFlops(const ModelSpec& model, absl::Span<const MicroBatch> micro_batches) {
  const double hidden = static_cast<double>(model.hidden_size);
  const double block = hidden * static_cast<double>(model.qkv_size() + model.query_size() +
                                                    model.mlp_in_size() + model.intermediate_size);
  const double layers = static_cast<double>(model.num_layers);
  const double matrices = layers * block + hidden * static_cast<double>(model.vocab_size);
  double tokens = 0, pairs = 0;
  for (const MicroBatch& batch : micro_batches) {
    tokens += static_cast<double>(batch.tokens());
    for (size_t i = 1; i < batch.boundaries.size(); ++i) {
      const double n = batch.boundaries[i] - batch.boundaries[i - 1];
      pairs += n * (n + 1) / 2;
    }
  }
  return 6 * matrices * tokens + 12 * layers * static_cast<double>(model.query_size()) * pairs;
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
