// Precision recipes: how parameters and optimizer state are kept on the host.
#ifndef MILLRACE_ENGINE_STATE_RECIPE_H_
#define MILLRACE_ENGINE_STATE_RECIPE_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "engine/base/dtype.h"

namespace millrace {

enum class Recipe : uint8_t {
  kFull,  // fp32 master and moments; streamed in the compute type
  kLean,  // fp32 master, 8-bit moments; streamed in the compute type
  kTiny,  // bf16 weights, stochastically rounded, 8-bit moments; bf16 compute only
  kFp32,  // as `full` with f32 compute and f32 gradients: for parity checks
};

// "full", "lean", "tiny", "fp32".
constexpr absl::string_view NameOf(Recipe recipe) {
  constexpr absl::string_view kNames[] = {"full", "lean", "tiny", "fp32"};
  return kNames[static_cast<int>(recipe)];
}

enum class WeightFormat : uint8_t {
  kF32,    // the master itself is streamed
  kSplit,  // bf16 high halves, streamed, and int16 low halves (split_master.h)
  kBF16,   // what is streamed is all there is
};

constexpr WeightFormat WeightFormatOf(Recipe recipe, DType compute_dtype) {
  if (recipe == Recipe::kTiny) return WeightFormat::kBF16;
  return compute_dtype == DType::kBF16 ? WeightFormat::kSplit : WeightFormat::kF32;
}

// Moments are quantized (quantized_moment.h), else f32.
constexpr bool HasQuantizedMoments(Recipe recipe) {
  return recipe == Recipe::kLean || recipe == Recipe::kTiny;
}

// What is wrong with a recipe in a compute type, as an error on precision.compute; empty: nothing.
constexpr absl::string_view ComputeProblem(Recipe recipe, DType compute_dtype) {
  if (recipe == Recipe::kFp32 && compute_dtype != DType::kF32) {
    return "the recipe fp32 computes in f32 only; set compute to f32, or recipe to full";
  }
  if (recipe == Recipe::kTiny && compute_dtype != DType::kBF16) {
    return "the recipe tiny keeps bf16 weights and computes in bf16 only; set compute to bf16, or "
           "recipe to lean";
  }
  return "";
}

}  // namespace millrace

#endif  // MILLRACE_ENGINE_STATE_RECIPE_H_
