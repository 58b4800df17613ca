#include "engine/data/batch.h"

#include <algorithm>

namespace millrace {

int64_t MicroBatch::longest_document() const {
  int64_t longest = 0;
  for (size_t i = 1; i < boundaries.size(); ++i) {
    longest = std::max<int64_t>(longest, boundaries[i] - boundaries[i - 1]);
  }
  return longest;
}

int64_t CountTargets(absl::Span<const MicroBatch> micro_batches) {
  int64_t count = 0;
  for (const MicroBatch& batch : micro_batches) count += batch.target_count;
  return count;
}

}  // namespace millrace
