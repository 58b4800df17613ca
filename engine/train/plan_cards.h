// The document of what each shipped card can train (engine/schedule/CARDS.md).
#ifndef MILLRACE_ENGINE_TRAIN_PLAN_CARDS_H_
#define MILLRACE_ENGINE_TRAIN_PLAN_CARDS_H_

#include <string>

#include "absl/status/statusor.h"

namespace millrace {

// Markdown: for every shipped profile a table of models from 0.5B to 70B, each with the most exact
// recipe that fits, tokens/s and what bounds it. Depends on the profiles and the planner alone.
absl::StatusOr<std::string> CardsDocument();

}  // namespace millrace

#endif  // MILLRACE_ENGINE_TRAIN_PLAN_CARDS_H_
