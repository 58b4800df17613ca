#include "engine/train/weights_hash.h"

#include <atomic>
#include <cstddef>
#include <vector>

#include "engine/base/file.h"

namespace millrace {

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
