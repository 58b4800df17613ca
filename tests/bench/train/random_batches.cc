#include "tests/bench/train/random_batches.h"

#include "engine/base/random.h"

namespace millrace {

std::vector<MicroBatch> RandomBatches(const ModelSpec& spec, const StepShape& shape,
                                      uint64_t step) {
  std::vector<MicroBatch> batches(static_cast<size_t>(shape.micro_batches));
  uint64_t stream = step * batches.size();
  for (MicroBatch& batch : batches) {
    const CounterRandom random(1, stream++);
    batch.boundaries = {0};
    for (int64_t i = 0; i < shape.tokens_per_micro_batch; ++i) {
      const uint64_t index = static_cast<uint64_t>(2 * i);
      batch.inputs.push_back(static_cast<int32_t>(random.Below(spec.vocab_size, index)));
      batch.targets.push_back(static_cast<int32_t>(random.Below(spec.vocab_size, index + 1)));
      batch.positions.push_back(static_cast<int32_t>(i % shape.longest_document));
      if ((i + 1) % shape.longest_document == 0) {
        batch.boundaries.push_back(static_cast<int32_t>(i + 1));
      }
    }
    batch.target_count = batch.tokens();
  }
  return batches;
}

std::vector<TokenBatch> Views(const std::vector<MicroBatch>& batches) {
  std::vector<TokenBatch> views;
  for (const MicroBatch& batch : batches) {
    views.push_back({batch.inputs, batch.targets, batch.positions, batch.boundaries});
  }
  return views;
}

}  // namespace millrace
