#include "engine/data/split_behavior.h"

#include <algorithm>

namespace millrace {
namespace {

struct Named {
  absl::string_view name;
  SplitBehavior behavior;
};
constexpr Named kBehaviors[] = {
    {"Removed", SplitBehavior::kRemoved},
    {"Isolated", SplitBehavior::kIsolated},
    {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
    {"MergedWithNext", SplitBehavior::kMergedWithNext},
    {"Contiguous", SplitBehavior::kContiguous},
};

void Append(TextRange range, std::vector<TextRange>* pieces) {
  if (range.begin < range.end) pieces->push_back(range);
}

// Neighbours that `joined(previous, next)` holds for become one piece; empty stretches count as
// stretches.
template <typename Joined>
void Join(const std::vector<Stretch>& stretches, Joined joined, std::vector<TextRange>* pieces) {
  if (stretches.empty()) return;
  TextRange piece = stretches[0].range;
  for (size_t i = 1; i < stretches.size(); ++i) {
    if (joined(stretches[i - 1].match, stretches[i].match)) {
      piece.end = stretches[i].range.end;
    } else {
      Append(piece, pieces);
      piece = stretches[i].range;
    }
  }
  Append(piece, pieces);
}

}  // namespace

absl::optional<SplitBehavior> SplitBehaviorNamed(absl::string_view name) {
  for (const Named& known : kBehaviors) {
    if (known.name == name) return known.behavior;
  }
  return absl::nullopt;
}

void CutStretches(SplitBehavior behavior, std::vector<Stretch>* stretches,
                  std::vector<TextRange>* pieces) {
  switch (behavior) {
    case SplitBehavior::kIsolated:
      for (const Stretch& stretch : *stretches) Append(stretch.range, pieces);
      return;
    case SplitBehavior::kRemoved:
      for (const Stretch& stretch : *stretches) {
        if (!stretch.match) Append(stretch.range, pieces);
      }
      return;
    case SplitBehavior::kMergedWithPrevious:
      return Join(
          *stretches, [](bool previous, bool next) { return next && !previous; }, pieces);
    case SplitBehavior::kMergedWithNext:
      return Join(
          *stretches, [](bool previous, bool next) { return previous && !next; }, pieces);
    case SplitBehavior::kContiguous:
      return Join(
          *stretches, [](bool previous, bool next) { return previous == next; }, pieces);
  }
}

}  // namespace millrace
