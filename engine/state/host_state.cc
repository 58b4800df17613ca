#include "engine/state/host_state.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
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

std::vector<MemoryPool> HostStateMemory(absl::Span<const SlabLayout> layouts, Recipe recipe,
                                        DType compute_dtype, OptimizerKind optimizer) {
  int64_t parameters = 0;
  for (const SlabLayout& layout : layouts) parameters += layout.count;
  const int64_t moment =
      HasQuantizedMoments(recipe) ? parameters + parameters / kMomentBlock : 4 * parameters;
  const int64_t weight = WeightFormatOf(recipe, compute_dtype) == WeightFormat::kBF16 ? 2 : 4;
  return {{"weights", weight * parameters},
          {"optimizer", HasSecondMoment(optimizer) ? 2 * moment : moment}};
}

absl::StatusOr<std::unique_ptr<HostState>> HostState::Create(std::vector<SlabLayout> layouts,
                                                             Recipe recipe, DType compute_dtype,
                                                             ThreadPool& pool,
                                                             OptimizerKind optimizer) {
  const absl::string_view problem = ComputeProblem(recipe, compute_dtype);
  if (!problem.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("precision.compute: ", problem));
  }
  std::unique_ptr<HostState> state(
      new HostState(std::move(layouts), recipe, compute_dtype, optimizer));
  MILLRACE_RETURN_IF_ERROR(state->Allocate(pool));
  return state;
}

absl::StatusOr<std::unique_ptr<HostState>> HostState::CreateWeights(std::vector<SlabLayout> layouts,
                                                                    DType compute_dtype,
                                                                    ThreadPool& pool) {
  const Recipe recipe = compute_dtype == DType::kBF16 ? Recipe::kTiny : Recipe::kFp32;
  std::unique_ptr<HostState> state(
      new HostState(std::move(layouts), recipe, compute_dtype, OptimizerKind::kSgd));
  state->weights_only_ = true;
  MILLRACE_RETURN_IF_ERROR(state->Allocate(pool));
  return state;
}

absl::Status HostState::Allocate(ThreadPool& pool) {
  const auto allocate = [&](AlignedBuffer& buffer, size_t bytes,
                            absl::string_view purpose) -> absl::Status {
    MILLRACE_ASSIGN_OR_RETURN(buffer, AllocateTouched(bytes, purpose, pool));
    return absl::OkStatus();
  };
  const auto allocate_moment = [&](Moment& moment, size_t count) -> absl::Status {
    if (!HasQuantizedMoments(recipe_)) return allocate(moment.values, count * 4, "optimizer state");
    MILLRACE_RETURN_IF_ERROR(allocate(moment.codes, count, "optimizer state"));
    return allocate(moment.exponents, count / kMomentBlock, "optimizer state");
  };
  int64_t first_element = 0;
  for (const SlabLayout& layout : layouts_) {
    const size_t count = static_cast<size_t>(layout.count);
    Unit& unit = units_.emplace_back();
    unit.first_element = first_element;
    first_element += layout.count;
    MILLRACE_RETURN_IF_ERROR(allocate(unit.weights, count * SizeOf(compute_dtype_), "weights"));
    if (split()) MILLRACE_RETURN_IF_ERROR(allocate(unit.low_halves, count * 2, "weights"));
    if (weights_only_) continue;
    MILLRACE_RETURN_IF_ERROR(allocate_moment(unit.first, count));
    if (HasSecondMoment(optimizer_)) {
      MILLRACE_RETURN_IF_ERROR(allocate_moment(unit.second, count));
    }
  }
  return absl::OkStatus();
}

std::vector<absl::Span<std::byte>> HostState::Slabs(int index) {
  MarkLowHalves(index);
  Unit& unit = units_[index];
  const size_t elements = static_cast<size_t>(count(index));
  std::vector<absl::Span<std::byte>> slabs;
  const auto add = [&slabs](AlignedBuffer& buffer, size_t bytes) {
    if (buffer.data() != nullptr) slabs.push_back({buffer.data(), bytes});
  };
  add(unit.weights, StreamedBytes(index));
  add(unit.low_halves, elements * 2);
  for (Moment* moment : {&unit.first, &unit.second}) {
    add(moment->values, elements * 4);
    add(moment->codes, elements);
    add(moment->exponents, elements / kMomentBlock);
  }
  return slabs;
}

std::vector<absl::Span<const std::byte>> HostState::Slabs(int index) const {
  std::vector<absl::Span<const std::byte>> slabs;
  for (absl::Span<std::byte> slab : const_cast<HostState*>(this)->Slabs(index)) {
    slabs.push_back(slab);
  }
  return slabs;
}

bool HostState::WeightsFinite(int unit, ThreadPool& pool) const {
  const void* weights = StreamedWeights(unit);
  std::atomic<bool> finite{true};
  pool.ParallelFor(count(unit), 65536, [&](int64_t begin, int64_t end) {
    const bool found = compute_dtype_ == DType::kBF16
                           ? AnyNotFinite<uint16_t>(weights, begin, end, 0x7f80)
                           : AnyNotFinite<uint32_t>(weights, begin, end, 0x7f800000);
    if (found) finite.store(false, std::memory_order_relaxed);
  });
  return finite;
}

void HostState::ReadMaster(int unit, int64_t offset, absl::Span<float> values) const {
  const Unit& slabs = units_[unit];
  if (weight_format() == WeightFormat::kF32) {
    std::copy_n(slabs.weights.as<float>() + offset, values.size(), values.data());
    return;
  }
  const BFloat16* high = slabs.weights.as<BFloat16>() + offset;
  if (weight_format() == WeightFormat::kBF16) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = high[i].ToFloat();
    return;
  }
  const int16_t* low = slabs.low_halves.as<int16_t>() + offset;
  for (size_t i = 0; i < values.size(); ++i) values[i] = Join({high[i], low[i]});
}

void HostState::WriteMaster(int unit, int64_t offset, absl::Span<const float> values) {
  Unit& slabs = units_[unit];
  if (weight_format() == WeightFormat::kF32) {
    std::copy_n(values.data(), values.size(), slabs.weights.as<float>() + offset);
    return;
  }
  BFloat16* high = slabs.weights.as<BFloat16>() + offset;
  if (weight_format() == WeightFormat::kBF16) {
    for (size_t i = 0; i < values.size(); ++i) high[i] = BFloat16::FromFloat(values[i]);
    return;
  }
  int16_t* low = low_halves(unit) + offset;
  for (size_t i = 0; i < values.size(); ++i) {
    const SplitMaster halves = Split(values[i]);
    high[i] = halves.high;
    low[i] = halves.low;
  }
}

BFloat16* HostState::BFloat16Weights(int unit, int64_t offset, int64_t count) {
  Unit& slabs = units_[unit];
  if (split() && std::atomic_ref<bool>(slabs.low_halves_written).load(std::memory_order_relaxed)) {
    std::fill_n(slabs.low_halves.as<int16_t>() + offset, count, int16_t{0});
  }
  return slabs.weights.as<BFloat16>() + offset;
}

}  // namespace millrace
