// The one authority for parameters and optimizer state: a slab each a unit, in host memory,
// addressed by SlabLayout alone.
//
//   MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<HostState> state,
//                             HostState::Create(MakeSlabLayouts(spec), Recipe::kFull,
//                                               DType::kBF16, pool));
//   device.CopyToDevice(*upload, slot, state->StreamedWeights(unit), state->StreamedBytes(unit));
//
// What is streamed always has the compute type, so that an upload never converts:
//
//   compute  master                                   streamed     gradients
//   bf16     bf16 high halves + int16 low halves      high halves  bf16 (f32 for the embedding)
//   f32      f32                                      the master   f32
//
// Both masters hold the same fp32 value in the same four bytes a parameter, so `full` on a
// processor without bf16 needs no second copy and no reconstruction. The recipe `fp32` has f32
// compute only. The embedding's gradient is summed row by row over a whole step, hence f32.
//
// Threads: const methods from any; a unit's slabs are written by one caller at a time.
#ifndef MILLRACE_ENGINE_STATE_HOST_STATE_H_
#define MILLRACE_ENGINE_STATE_HOST_STATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/aligned_buffer.h"
#include "engine/base/dtype.h"
#include "engine/base/thread_pool.h"
#include "engine/model/slab_layout.h"
#include "engine/state/recipe.h"

namespace millrace {

// Host memory by purpose: "weights", "optimizer".
struct MemoryPool {
  std::string purpose;
  int64_t bytes = 0;
};

// Bytes that a HostState of these arguments takes, before it is made.
std::vector<MemoryPool> HostStateMemory(absl::Span<const SlabLayout> layouts, Recipe recipe,
                                        DType compute_dtype);

// Type of a unit's gradient on the host, and bytes of all gradients there. Their slabs belong to
// the schedule (engine/exec), in the units' layouts.
DType GradientDType(const SlabLayout& layout, DType compute_dtype);
int64_t GradientMemoryBytes(absl::Span<const SlabLayout> layouts, DType compute_dtype);

class HostState {
 public:
  // All zero, every page touched by the threads of `pool`. INVALID_ARGUMENT for recipe `fp32` with
  // bf16 compute; RESOURCE_EXHAUSTED when memory is short.
  static absl::StatusOr<std::unique_ptr<HostState>> Create(std::vector<SlabLayout> layouts,
                                                           Recipe recipe, DType compute_dtype,
                                                           ThreadPool& pool);

  int num_units() const { return static_cast<int>(layouts_.size()); }
  const std::vector<SlabLayout>& layouts() const { return layouts_; }
  const SlabLayout& layout(int unit) const { return layouts_[unit]; }
  // Elements of each slab of `unit`, with padding.
  int64_t count(int unit) const { return layouts_[unit].count; }
  Recipe recipe() const { return recipe_; }
  DType compute_dtype() const { return compute_dtype_; }
  // The master is in two halves (bf16 compute).
  bool split() const { return compute_dtype_ == DType::kBF16; }

  // What is uploaded: count(unit) elements of the compute type, 4 KiB aligned.
  const void* StreamedWeights(int unit) const { return units_[unit].weights.data(); }
  size_t StreamedBytes(int unit) const {
    return static_cast<size_t>(count(unit)) * SizeOf(compute_dtype_);
  }

  // Weights as the optimizer sees them: f32 when !split(), else bf16 with low halves beside.
  void* weights(int unit) { return units_[unit].weights.data(); }
  int16_t* low_halves(int unit) { return units_[unit].low_halves.as<int16_t>(); }
  const int16_t* low_halves(int unit) const { return units_[unit].low_halves.as<int16_t>(); }
  // AdamW's exponential averages of the gradient and of its square.
  float* first_moment(int unit) { return units_[unit].first_moment.as<float>(); }
  const float* first_moment(int unit) const { return units_[unit].first_moment.as<float>(); }
  float* second_moment(int unit) { return units_[unit].second_moment.as<float>(); }
  const float* second_moment(int unit) const { return units_[unit].second_moment.as<float>(); }

  // fp32 master values of elements [offset, offset + values.size()) of a unit's slab.
  void ReadMaster(int unit, int64_t offset, absl::Span<float> values) const;
  void WriteMaster(int unit, int64_t offset, absl::Span<const float> values);

  // No streamed weight of `unit` is infinite or NaN.
  bool WeightsFinite(int unit, ThreadPool& pool) const;

  std::vector<MemoryPool> memory() const {
    return HostStateMemory(layouts_, recipe_, compute_dtype_);
  }

 private:
  struct Unit {
    AlignedBuffer weights, low_halves, first_moment, second_moment;
  };

  HostState(std::vector<SlabLayout> layouts, Recipe recipe, DType compute_dtype)
      : layouts_(std::move(layouts)), recipe_(recipe), compute_dtype_(compute_dtype) {}

  std::vector<SlabLayout> layouts_;
  Recipe recipe_;
  DType compute_dtype_;
  std::vector<Unit> units_;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_STATE_HOST_STATE_H_
