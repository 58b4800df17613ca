#include "engine/data/split.h"

#include <algorithm>
#include <cmath>

namespace millrace {

Split Split::Make(int64_t sequences, double eval_fraction) {
  Split split;
  split.sequences_ = sequences;
  if (eval_fraction <= 0 || sequences < 2) return split;
  const int64_t wanted = std::llround(static_cast<double>(sequences) * eval_fraction);
  const int64_t count = std::clamp<int64_t>(wanted, 1, sequences - 1);
  split.eval_.reserve(count);
  for (int64_t k = 0; k < count; ++k) {
    // The middle of the k-th of `count` equal parts of the stream.
    const __int128 middle = (static_cast<__int128>(2) * k + 1) * sequences;
    split.eval_.push_back(static_cast<int64_t>(middle / count / 2));
  }
  return split;
}

int64_t Split::Train(int64_t index) const {
  // eval_[k] - k training sequences come before evaluation sequence k, so the wanted sequence lies
  // behind all k for which that is at most `index`.
  int64_t low = 0, high = eval_sequences();
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (eval_[middle] - middle <= index) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return index + low;
}

}  // namespace millrace
