#include "engine/train/model_weights.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/status_macros.h"
#include "engine/model/model_directory.h"

namespace millrace {

absl::Status ReadWeights(const std::string& path, const ModelSpec& model, HostState* state,
                         absl::FunctionRef<absl::Status()> check) {
  return ReadModelDirectory(
      model, state->layouts(), path,
      [&](int64_t unit, int64_t offset, absl::Span<const float> values) -> absl::Status {
        MILLRACE_RETURN_IF_ERROR(check());
        state->WriteMaster(static_cast<int>(unit), offset, values);
        return absl::OkStatus();
      });
}

std::string WeightsSha256(const HostState& state, ThreadPool& pool) {
  std::vector<std::string> hashes(static_cast<size_t>(state.num_units()));
  // Units differ in size: whoever is free takes the next. The outcome does not depend on who.
  std::atomic<size_t> next{0};
  pool.Run([&](int) {
    for (size_t unit = next++; unit < hashes.size(); unit = next++) {
      Sha256 hash;
      const auto slabs = state.Slabs(static_cast<int>(unit));
      // What is streamed, and where the master is split its other half.
      for (size_t i = 0; i < (state.split() ? 2u : 1u); ++i) {
        hash.Update({reinterpret_cast<const char*>(slabs[i].data()), slabs[i].size()});
      }
      hashes[unit] = hash.Finish();
    }
  });
  Sha256 all;
  for (const std::string& hash : hashes) all.Update(hash);
  return all.Finish();
}

}  // namespace millrace
