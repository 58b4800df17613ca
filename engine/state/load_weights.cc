#include "engine/state/load_weights.h"

#include "absl/types/span.h"
#include "engine/base/dtype.h"
#include "engine/model/model_directory.h"

namespace millrace {

absl::Status LoadWeights(const ModelSpec& model, const std::string& path, ThreadPool& pool,
                         HostState* state) {
  const auto write = [state](int64_t unit, int64_t offset, auto values) {
    state->WriteMaster(static_cast<int>(unit), offset, values);
    return absl::OkStatus();
  };
  return ReadModelDirectory(model, state->layouts(), path, write,
                            {.threads = &pool, .bf16 = BFloat16Sink(write)});
}

}  // namespace millrace
