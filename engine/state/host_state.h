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
//   recipe      compute  weights                                  streamed     bytes  moments
//   full        bf16     bf16 high halves + int16 low halves      high halves  4      f32
//   full, fp32  f32      f32                                      the master   4      f32
//   lean        bf16     bf16 high halves + int16 low halves      high halves  4      8-bit
//   lean        f32      f32                                      the master   4      8-bit
//   tiny        bf16     bf16, stochastically rounded             the weights  2      8-bit
//   weights     bf16     bf16                                     the weights  2      none
//   weights     f32      f32                                      the weights  4      none
//
// A moment takes 4 bytes a parameter in f32, 1 1/128 in 8 bits (quantized_moment.h); AdamW has two,
// the other optimizers one.
//
// Threads: const methods from any; an element is written by one caller at a time.
#ifndef MILLRACE_ENGINE_STATE_HOST_STATE_H_
#define MILLRACE_ENGINE_STATE_HOST_STATE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/aligned_buffer.h"
#include "engine/base/dtype.h"
#include "engine/base/thread_pool.h"
#include "engine/model/slab_layout.h"
#include "engine/state/optimizer_kind.h"
#include "engine/state/quantized_moment.h"
#include "engine/state/recipe.h"

namespace millrace {

// Host memory by purpose: "weights", "optimizer".
struct MemoryPool {
  std::string purpose;
  int64_t bytes = 0;
};

// Bytes that a HostState of these arguments takes, before it is made.
std::vector<MemoryPool> HostStateMemory(absl::Span<const SlabLayout> layouts, Recipe recipe,
                                        DType compute_dtype,
                                        OptimizerKind optimizer = OptimizerKind::kAdamW);

// Type of a unit's gradient on the host. The slabs of gradients belong to the schedule
// (engine/exec), in the units' layouts. The embedding's gradient is summed row by row over a whole
// step, hence f32.
DType GradientDType(const SlabLayout& layout, DType compute_dtype);

class HostState {
 public:
  // All zero, every page touched by the threads of `pool`. INVALID_ARGUMENT where ComputeProblem
  // (recipe.h) has one; RESOURCE_EXHAUSTED when memory is short.
  static absl::StatusOr<std::unique_ptr<HostState>> Create(
      std::vector<SlabLayout> layouts, Recipe recipe, DType compute_dtype, ThreadPool& pool,
      OptimizerKind optimizer = OptimizerKind::kAdamW);

  // The same of weights alone, to be used and not trained: bf16 or f32, whatever they were trained
  // with. No optimizer may be run on it.
  static absl::StatusOr<std::unique_ptr<HostState>> CreateWeights(std::vector<SlabLayout> layouts,
                                                                  DType compute_dtype,
                                                                  ThreadPool& pool);

  int num_units() const { return static_cast<int>(layouts_.size()); }
  const std::vector<SlabLayout>& layouts() const { return layouts_; }
  const SlabLayout& layout(int unit) const { return layouts_[unit]; }
  // Elements of each slab of `unit`, with padding.
  int64_t count(int unit) const { return layouts_[unit].count; }
  Recipe recipe() const { return recipe_; }
  DType compute_dtype() const { return compute_dtype_; }
  OptimizerKind optimizer() const { return optimizer_; }
  WeightFormat weight_format() const { return WeightFormatOf(recipe_, compute_dtype_); }
  // The master is in two halves.
  bool split() const { return weight_format() == WeightFormat::kSplit; }
  // Elements of all slabs before that of `unit`: its first element's number in the model.
  int64_t first_element(int unit) const { return units_[unit].first_element; }

  // What is uploaded: count(unit) elements of the compute type, 4 KiB aligned.
  const void* StreamedWeights(int unit) const { return units_[unit].weights.data(); }
  size_t StreamedBytes(int unit) const {
    return static_cast<size_t>(count(unit)) * SizeOf(compute_dtype_);
  }

  // Weights as the optimizer sees them, in weight_format(); low halves are nullptr unless split().
  void* weights(int unit) { return units_[unit].weights.data(); }
  int16_t* low_halves(int unit) {
    MarkLowHalves(unit);
    return units_[unit].low_halves.as<int16_t>();
  }
  const int16_t* low_halves(int unit) const { return units_[unit].low_halves.as<int16_t>(); }
  // The exponential averages of the gradient (SGD: its momentum) and of its square: nullptr where
  // the recipe has them quantized or the optimizer has none.
  float* first_moment(int unit) { return units_[unit].first.values.as<float>(); }
  const float* first_moment(int unit) const { return units_[unit].first.values.as<float>(); }
  float* second_moment(int unit) { return units_[unit].second.values.as<float>(); }
  const float* second_moment(int unit) const { return units_[unit].second.values.as<float>(); }
  // The same where they are quantized.
  QuantizedMoment first_codes(int unit) { return units_[unit].first.quantized(); }
  QuantizedMoment second_codes(int unit) { return units_[unit].second.quantized(); }

  // All that is kept of a unit: what is streamed first, then the rest in the order of a checkpoint.
  std::vector<absl::Span<std::byte>> Slabs(int unit);
  std::vector<absl::Span<const std::byte>> Slabs(int unit) const;

  // Weights in fp32, elements [offset, offset + values.size()) of a unit's slab. Writing rounds to
  // nearest where there is no fp32 master.
  void ReadMaster(int unit, int64_t offset, absl::Span<float> values) const;
  void WriteMaster(int unit, int64_t offset, absl::Span<const float> values);
  // Where to write elements [offset, offset + count) as bf16, whose low halves become zero. Not for
  // a whole fp32 master.
  BFloat16* BFloat16Weights(int unit, int64_t offset, int64_t count);

  // No streamed weight of `unit` is infinite or NaN.
  bool WeightsFinite(int unit, ThreadPool& pool) const;

  std::vector<MemoryPool> memory() const {
    std::vector<MemoryPool> pools = HostStateMemory(layouts_, recipe_, compute_dtype_, optimizer_);
    if (weights_only_) pools.resize(1);
    return pools;
  }

 private:
  // f32 values, or codes and exponents.
  struct Moment {
    AlignedBuffer values, codes, exponents;
    QuantizedMoment quantized() { return {codes.as<uint8_t>(), exponents.as<uint8_t>()}; }
  };
  struct Unit {
    int64_t first_element = 0;
    AlignedBuffer weights, low_halves;
    // Until somebody may have written them, low halves are known to be zero, and need not be set.
    bool low_halves_written = false;
    Moment first, second;
  };

  HostState(std::vector<SlabLayout> layouts, Recipe recipe, DType compute_dtype,
            OptimizerKind optimizer)
      : layouts_(std::move(layouts)),
        recipe_(recipe),
        compute_dtype_(compute_dtype),
        optimizer_(optimizer) {}

  absl::Status Allocate(ThreadPool& pool);
  // From any thread.
  void MarkLowHalves(int unit) {
    std::atomic_ref<bool>(units_[unit].low_halves_written).store(true, std::memory_order_relaxed);
  }

  std::vector<SlabLayout> layouts_;
  Recipe recipe_;
  DType compute_dtype_;
  OptimizerKind optimizer_;
  bool weights_only_ = false;
  std::vector<Unit> units_;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_STATE_HOST_STATE_H_
