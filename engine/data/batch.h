// What one pass through the model is fed with.
#ifndef MILLRACE_ENGINE_DATA_BATCH_H_
#define MILLRACE_ENGINE_DATA_BATCH_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace millrace {

// Whole sequences, one after the other. All vectors but `boundaries` have one element a token.
struct MicroBatch {
  std::vector<int32_t> inputs;
  std::vector<int32_t> targets;    // the token to predict; -1 where there is none
  std::vector<int32_t> positions;  // within the document's part of the sequence, from 0
  // Cumulative lengths of the documents' parts: 0 first, tokens() last. Attention stays inside.
  std::vector<int32_t> boundaries;
  int64_t target_count = 0;  // targets that are not -1

  int64_t tokens() const { return static_cast<int64_t>(inputs.size()); }
  // Tokens of the longest part.
  int64_t longest_document() const;
};

// Targets of a whole step: what the sum of its losses is divided by.
int64_t CountTargets(absl::Span<const MicroBatch> micro_batches);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_BATCH_H_
