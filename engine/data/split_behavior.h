// What becomes of the matches when text is cut at a pattern.
#ifndef MILLRACE_ENGINE_DATA_SPLIT_BEHAVIOR_H_
#define MILLRACE_ENGINE_DATA_SPLIT_BEHAVIOR_H_

#include <cstddef>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "engine/data/pre_tokenizer.h"

namespace millrace {

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// "Isolated" and so on; nothing for other names.
absl::optional<SplitBehavior> SplitBehaviorNamed(absl::string_view name);

// A stretch of text that is a match, or lies between matches.
struct Stretch {
  TextRange range;
  bool match;
};

// Appends the pieces into which stretches, which follow each other without a gap, are cut. May
// change `stretches`.
void CutStretches(SplitBehavior behavior, std::vector<Stretch>* stretches,
                  std::vector<TextRange>* pieces);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_SPLIT_BEHAVIOR_H_
