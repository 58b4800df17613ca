#include "engine/state/load_weights.h"

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
  const auto place = [&](int64_t unit, int64_t offset,
                         int64_t count) -> absl::StatusOr<absl::Span<BFloat16>> {
    MILLRACE_RETURN_IF_ERROR(check());
    BFloat16* weights = state->BFloat16Weights(static_cast<int>(unit), offset, count);
    return absl::MakeSpan(weights, static_cast<size_t>(count));
  };
  ReadOptions options = {.threads = &pool};
  if (state->weight_format() != WeightFormat::kF32) options.bf16.emplace(place);
  return ReadModelDirectory(model, state->layouts(), path, write, options);
}

}  // namespace millrace
