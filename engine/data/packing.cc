#include "engine/data/packing.h"

#include <algorithm>
#include <vector>

namespace millrace {

void Packing::Append(int64_t index, MicroBatch* batch) const {
  const int64_t first = index * (sequence_length_ + 1);
  std::vector<int32_t> window(sequence_length_ + 1);
  store_->Read(first, absl::MakeSpan(window));

  const absl::Span<const uint64_t> ends = store_->document_ends();
  // The end of the document that the window begins in.
  const uint64_t* end = std::upper_bound(ends.begin(), ends.end(), static_cast<uint64_t>(first));
  if (batch->boundaries.empty()) batch->boundaries.push_back(0);
  int32_t position = 0;
  for (int64_t t = 0; t < sequence_length_; ++t) {
    const bool last_of_document = static_cast<uint64_t>(first + t + 1) == *end;
    batch->inputs.push_back(window[t]);
    batch->targets.push_back(last_of_document ? -1 : window[t + 1]);
    batch->positions.push_back(position++);
    batch->target_count += !last_of_document;
    if (last_of_document || t + 1 == sequence_length_) {
      batch->boundaries.push_back(static_cast<int32_t>(batch->inputs.size()));
      position = 0;
    }
    if (last_of_document) ++end;
  }
}

}  // namespace millrace
