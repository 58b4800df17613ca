#include "engine/state/initial_weights.h"

#include "absl/types/span.h"
#include "engine/base/aligned_buffer.h"
#include "engine/base/status_macros.h"
#include "engine/model/initializer.h"

namespace millrace {

absl::Status DrawWeights(const ModelSpec& model, uint64_t seed, ThreadPool& pool,
                         HostState* state) {
  for (int unit = 0; unit < state->num_units(); ++unit) {
    const int64_t count = state->count(unit);
    MILLRACE_ASSIGN_OR_RETURN(
        AlignedBuffer buffer,
        AlignedBuffer::Allocate(static_cast<size_t>(count) * sizeof(float), "initial weights"));
    float* const values = buffer.as<float>();
    InitializeSlab(model, state->layout(unit), seed, pool,
                   absl::MakeSpan(values, static_cast<size_t>(count)));
    pool.ParallelFor(count, [&](int64_t begin, int64_t end) {
      state->WriteMaster(unit, begin,
                         absl::MakeConstSpan(values + begin, static_cast<size_t>(end - begin)));
    });
  }
  return absl::OkStatus();
}

}  // namespace millrace
