#include "engine/optim/gradient_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/optim/gradient_norm.cc"
// Scalable vectors cannot be held in an array; their processors take the NEON path.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Element i is added to sum i mod 16, whatever the vector width. The square of an f32 is exact in
// double, so that a fused and a separate multiplication give the same.
constexpr size_t kSums = 16;

template <bool kBF16>
double Sum(const void* gradient, int64_t begin, int64_t end) {
  const hn::CappedTag<double, 8> f64;
  const hn::Rebind<float, decltype(f64)> f32;
  const hn::Rebind<uint16_t, decltype(f64)> u16;
  const hn::Rebind<uint32_t, decltype(f64)> u32;
  constexpr size_t kLanes = hn::MaxLanes(f64);
  hn::Vec<decltype(f64)> sums[kSums / kLanes];
  for (auto& sum : sums) sum = hn::Zero(f64);
  for (int64_t i = begin; i < end; i += kSums) {
    for (size_t s = 0; s < kSums / kLanes; ++s) {
      const int64_t at = i + static_cast<int64_t>(s * kLanes);
      auto g = hn::Zero(f32);
      if constexpr (kBF16) {
        const auto bits = hn::LoadU(u16, static_cast<const uint16_t*>(gradient) + at);
        g = hn::BitCast(f32, hn::ShiftLeft<16>(hn::PromoteTo(u32, bits)));
      } else {
        g = hn::LoadU(f32, static_cast<const float*>(gradient) + at);
      }
      const auto wide = hn::PromoteTo(f64, g);
      sums[s] = hn::MulAdd(wide, wide, sums[s]);
    }
  }
  HWY_ALIGN double lanes[kSums];
  for (size_t s = 0; s < kSums / kLanes; ++s) hn::Store(sums[s], f64, lanes + s * kLanes);
  double total = 0;
  for (double lane : lanes) total += lane;
  return total;
}

double SumOfSquares(const void* gradient, DType dtype, int64_t begin, int64_t end) {
  return dtype == DType::kBF16 ? Sum<true>(gradient, begin, end) : Sum<false>(gradient, begin, end);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <vector>

namespace millrace {
namespace {
HWY_EXPORT(SumOfSquares);

// Elements summed by one thread in one go; slabs are multiples of it or end in a shorter block.
constexpr int64_t kBlock = 32768;
}  // namespace

double GradientSumOfSquares(const SlabLayout& layout, const GradientSlab& gradient,
                            ThreadPool& pool) {
  const int64_t count = layout.count;
  std::vector<double> partial((count + kBlock - 1) / kBlock);
  pool.ParallelFor(static_cast<int64_t>(partial.size()), [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      partial[block] = HWY_DYNAMIC_DISPATCH(SumOfSquares)(
          gradient.data, gradient.dtype, block * kBlock, std::min((block + 1) * kBlock, count));
    }
  });
  double total = 0;
  for (double sum : partial) total += sum;
  return total;
}

double ClipFactor(double norm, double clip_norm) {
  if (clip_norm <= 0) return 1.0;
  return std::min(1.0, clip_norm / (norm + 1e-6));
}

}  // namespace millrace
#endif  // HWY_ONCE
