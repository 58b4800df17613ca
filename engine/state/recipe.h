// Precision recipes: how parameters and optimizer state are kept on the host.
#ifndef MILLRACE_ENGINE_STATE_RECIPE_H_
#define MILLRACE_ENGINE_STATE_RECIPE_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace millrace {

enum class Recipe : uint8_t {
  kFull,  // fp32 master and moments, 12 bytes a parameter; streamed in the compute type
  kFp32,  // the same with f32 compute and f32 gradients: for parity checks
};

// "full", "fp32".
constexpr absl::string_view NameOf(Recipe recipe) {
  return recipe == Recipe::kFull ? absl::string_view("full") : absl::string_view("fp32");
}

}  // namespace millrace

#endif  // MILLRACE_ENGINE_STATE_RECIPE_H_
