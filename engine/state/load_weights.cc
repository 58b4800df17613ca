#include "engine/state/load_weights.h"

#include "absl/types/span.h"
#include "engine/base/dtype.h"
#include "engine/base/status_macros.h"
#include "engine/model/model_directory.h"

namespace millrace {

absl::Status LoadWeights(const ModelSpec& model, const std::string& path, ThreadPool& pool,
                         HostState* state, absl::FunctionRef<absl::Status()> check) {
  const auto write = [&](int64_t unit, int64_t offset, auto values) -> absl::Status {
    MILLRACE_RETURN_IF_ERROR(check());
    state->WriteMaster(static_cast<int>(unit), offset, values);
    return absl::OkStatus();
  };
  return ReadModelDirectory(model, state->layouts(), path, write,
                            {.threads = &pool, .bf16 = BFloat16Sink(write)});
}

}  // namespace millrace
