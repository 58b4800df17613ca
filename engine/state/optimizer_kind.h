// Optimizers, as far as it matters for what they keep of each parameter.
#ifndef MILLRACE_ENGINE_STATE_OPTIMIZER_KIND_H_
#define MILLRACE_ENGINE_STATE_OPTIMIZER_KIND_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace millrace {

// Their formulas: engine/optim/optimizer.h.
enum class OptimizerKind : uint8_t { kAdamW, kSgd, kLion };

// "adamw", "sgd", "lion".
constexpr absl::string_view NameOf(OptimizerKind kind) {
  constexpr absl::string_view kNames[] = {"adamw", "sgd", "lion"};
  return kNames[static_cast<int>(kind)];
}

// Only AdamW averages squares; all have a first moment (or momentum).
constexpr bool HasSecondMoment(OptimizerKind kind) { return kind == OptimizerKind::kAdamW; }

}  // namespace millrace

#endif  // MILLRACE_ENGINE_STATE_OPTIMIZER_KIND_H_
