#include "engine/state/load_weights.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/dtype.h"
#include "engine/base/status_macros.h"
#include "engine/model/model_directory.h"

namespace millrace {

absl::Status LoadWeights(const ModelSpec& model, const std::string& path, ThreadPool& pool,
                         HostState* state, absl::FunctionRef<absl::Status()> check) {
  const auto write = [&](int64_t unit, int64_t offset,
                         absl::Span<const float> values) -> absl::Status {
    MILLRACE_RETURN_IF_ERROR(check());
    state->WriteMaster(static_cast<int>(unit), offset, values);
    return absl::OkStatus();
  };
  // What is bf16 in the file needs no conversion where it is in the slab: only zero low halves.
  const auto place = [&](int64_t unit, int64_t offset,
                         int64_t count) -> absl::StatusOr<absl::Span<BFloat16>> {
    MILLRACE_RETURN_IF_ERROR(check());
    const int index = static_cast<int>(unit);
    if (state->split()) std::fill_n(state->low_halves(index) + offset, count, int16_t{0});
    BFloat16* weights = static_cast<BFloat16*>(state->weights(index));
    return absl::MakeSpan(weights + offset, static_cast<size_t>(count));
  };
  ReadOptions options = {.threads = &pool};
  if (state->weight_format() != WeightFormat::kF32) options.bf16.emplace(place);
  return ReadModelDirectory(model, state->layouts(), path, write, options);
}

}  // namespace millrace
