#include "engine/state/host_state.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "engine/base/status_macros.h"
#include "engine/state/split_master.h"

namespace millrace {
namespace {

// Allocates and writes each page once, in the division of work of later passes.
absl::StatusOr<AlignedBuffer> AllocateTouched(size_t bytes, absl::string_view purpose,
                                              ThreadPool& pool) {
  MILLRACE_ASSIGN_OR_RETURN(AlignedBuffer buffer, AlignedBuffer::Allocate(bytes, purpose));
  std::byte* data = buffer.data();
  pool.ParallelFor(static_cast<int64_t>(buffer.size()), int64_t{2} << 20,
                   [data](int64_t begin, int64_t end) {
                     std::memset(data + begin, 0, static_cast<size_t>(end - begin));
                   });
  return buffer;
}

// Whether one of the numbers has an exponent of all ones: infinite or NaN.
template <typename Bits>
bool AnyNotFinite(const void* data, int64_t begin, int64_t end, Bits exponent) {
  const std::byte* values = static_cast<const std::byte*>(data);
  Bits found = 0;
  for (int64_t i = begin; i < end; ++i) {
    Bits value;
    std::memcpy(&value, values + static_cast<size_t>(i) * sizeof(Bits), sizeof(Bits));
    found |= static_cast<Bits>((value & exponent) == exponent);
  }
  return found != 0;
}

}  // namespace

DType GradientDType(const SlabLayout& layout, DType compute_dtype) {
  return layout.kind == UnitKind::kEmbedding ? DType::kF32 : compute_dtype;
}

int64_t GradientMemoryBytes(absl::Span<const SlabLayout> layouts, DType compute_dtype) {
  int64_t bytes = 0;
  for (const SlabLayout& layout : layouts) {
    bytes += layout.count * static_cast<int64_t>(SizeOf(GradientDType(layout, compute_dtype)));
  }
  return bytes;
}

std::vector<MemoryPool> HostStateMemory(absl::Span<const SlabLayout> layouts, Recipe recipe,
                                        DType compute_dtype) {
  int64_t parameters = 0;
  for (const SlabLayout& layout : layouts) parameters += layout.count;
  return {{"weights", 4 * parameters}, {"optimizer", 8 * parameters}};
}

absl::StatusOr<std::unique_ptr<HostState>> HostState::Create(std::vector<SlabLayout> layouts,
                                                             Recipe recipe, DType compute_dtype,
                                                             ThreadPool& pool) {
  if (recipe == Recipe::kFp32 && compute_dtype != DType::kF32) {
    return absl::InvalidArgumentError(
        "precision.compute: the recipe fp32 computes in f32 only; set compute to f32, or recipe "
        "to full");
  }
  std::unique_ptr<HostState> state(new HostState(std::move(layouts), recipe, compute_dtype));
  for (const SlabLayout& layout : state->layouts_) {
    const size_t count = static_cast<size_t>(layout.count);
    Unit& unit = state->units_.emplace_back();
    const auto allocate = [&](AlignedBuffer& buffer, size_t bytes,
                              absl::string_view purpose) -> absl::Status {
      MILLRACE_ASSIGN_OR_RETURN(buffer, AllocateTouched(bytes, purpose, pool));
      return absl::OkStatus();
    };
    MILLRACE_RETURN_IF_ERROR(allocate(unit.weights, count * SizeOf(compute_dtype), "weights"));
    if (state->split()) {
      MILLRACE_RETURN_IF_ERROR(allocate(unit.low_halves, count * 2, "weights"));
    }
    MILLRACE_RETURN_IF_ERROR(allocate(unit.first_moment, count * 4, "optimizer state"));
    MILLRACE_RETURN_IF_ERROR(allocate(unit.second_moment, count * 4, "optimizer state"));
  }
  return state;
}

bool HostState::WeightsFinite(int unit, ThreadPool& pool) const {
  const void* weights = StreamedWeights(unit);
  std::atomic<bool> finite{true};
  pool.ParallelFor(count(unit), 65536, [&](int64_t begin, int64_t end) {
    const bool found = split() ? AnyNotFinite<uint16_t>(weights, begin, end, 0x7f80)
                               : AnyNotFinite<uint32_t>(weights, begin, end, 0x7f800000);
    if (found) finite.store(false, std::memory_order_relaxed);
  });
  return finite;
}

void HostState::ReadMaster(int unit, int64_t offset, absl::Span<float> values) const {
  const Unit& slabs = units_[unit];
  if (!split()) {
    std::copy_n(slabs.weights.as<float>() + offset, values.size(), values.data());
    return;
  }
  const BFloat16* high = slabs.weights.as<BFloat16>() + offset;
  const int16_t* low = slabs.low_halves.as<int16_t>() + offset;
  for (size_t i = 0; i < values.size(); ++i) values[i] = Join({high[i], low[i]});
}

void HostState::WriteMaster(int unit, int64_t offset, absl::Span<const float> values) {
  Unit& slabs = units_[unit];
  if (!split()) {
    std::copy_n(values.data(), values.size(), slabs.weights.as<float>() + offset);
    return;
  }
  BFloat16* high = slabs.weights.as<BFloat16>() + offset;
  int16_t* low = slabs.low_halves.as<int16_t>() + offset;
  for (size_t i = 0; i < values.size(); ++i) {
    const SplitMaster halves = Split(values[i]);
    high[i] = halves.high;
    low[i] = halves.low;
  }
}

}  // namespace millrace
