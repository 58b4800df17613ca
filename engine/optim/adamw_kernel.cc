#include "engine/optim/adamw_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/optim/adamw_kernel.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Ranges are whole vectors because kAdamWGrain is a multiple of 16.
using F32 = hn::CappedTag<float, 16>;
using I32 = hn::RebindToSigned<F32>;
using U32 = hn::RebindToUnsigned<F32>;
using I16 = hn::Rebind<int16_t, F32>;
using U16 = hn::Rebind<uint16_t, F32>;

template <bool kSplit, bool kBF16Gradient>
void Update(const AdamWSlabs& slabs, const AdamWFactors& factors, int64_t begin, int64_t end) {
  const F32 f32;
  const I32 i32;
  const U32 u32;
  const I16 i16;
  const U16 u16;
  const auto gradient_factor = hn::Set(f32, factors.gradient);
  const auto one_minus_beta1 = hn::Set(f32, factors.one_minus_beta1);
  const auto beta2 = hn::Set(f32, factors.beta2);
  const auto one_minus_beta2 = hn::Set(f32, factors.one_minus_beta2);
  const auto step_size = hn::Set(f32, factors.step_size);
  const auto inverse_sqrt_bias2 = hn::Set(f32, factors.inverse_sqrt_bias2);
  const auto epsilon = hn::Set(f32, factors.epsilon);
  const auto keep = hn::Set(f32, factors.keep);
  const auto half = hn::Set(i32, 0x8000);

  uint16_t* HWY_RESTRICT high = static_cast<uint16_t*>(slabs.weights);
  float* HWY_RESTRICT whole = static_cast<float*>(slabs.weights);
  int16_t* HWY_RESTRICT low = slabs.low_halves;
  float* HWY_RESTRICT first = slabs.first_moment;
  float* HWY_RESTRICT second = slabs.second_moment;
  const uint16_t* HWY_RESTRICT gradient_bf16 = static_cast<const uint16_t*>(slabs.gradient);
  const float* HWY_RESTRICT gradient_f32 = static_cast<const float*>(slabs.gradient);

  for (int64_t i = begin; i < end; i += static_cast<int64_t>(hn::Lanes(f32))) {
    auto g = hn::Zero(f32);
    if constexpr (kBF16Gradient) {
      g = hn::BitCast(f32, hn::ShiftLeft<16>(hn::PromoteTo(u32, hn::Load(u16, gradient_bf16 + i))));
    } else {
      g = hn::Load(f32, gradient_f32 + i);
    }
    auto w = hn::Zero(f32);
    if constexpr (kSplit) {
      const auto upper =
          hn::BitCast(i32, hn::ShiftLeft<16>(hn::PromoteTo(u32, hn::Load(u16, high + i))));
      w = hn::BitCast(f32, hn::Add(upper, hn::PromoteTo(i32, hn::Load(i16, low + i))));
    } else {
      w = hn::Load(f32, whole + i);
    }

    g = hn::Mul(g, gradient_factor);
    auto m = hn::Load(f32, first + i);
    m = hn::MulAdd(hn::Sub(g, m), one_minus_beta1, m);
    hn::Store(m, f32, first + i);
    auto v = hn::Load(f32, second + i);
    v = hn::MulAdd(hn::Mul(g, g), one_minus_beta2, hn::Mul(v, beta2));
    hn::Store(v, f32, second + i);
    const auto denominator = hn::MulAdd(hn::Sqrt(v), inverse_sqrt_bias2, epsilon);
    w = hn::NegMulAdd(step_size, hn::Div(m, denominator), hn::Mul(w, keep));

    if constexpr (kSplit) {
      const auto bits = hn::BitCast(i32, w);
      const auto upper =
          hn::BitCast(i32, hn::ShiftRight<16>(hn::BitCast(u32, hn::Add(bits, half))));
      hn::Store(hn::DemoteTo(u16, upper), u16, high + i);
      hn::Store(hn::DemoteTo(i16, hn::Sub(bits, hn::ShiftLeft<16>(upper))), i16, low + i);
    } else {
      hn::Store(w, f32, whole + i);
    }
  }
}

void UpdateRange(const AdamWSlabs& slabs, const AdamWFactors& factors, int64_t begin, int64_t end) {
  const bool bf16_gradient = slabs.gradient_dtype == DType::kBF16;
  if (slabs.low_halves != nullptr) {
    bf16_gradient ? Update<true, true>(slabs, factors, begin, end)
                  : Update<true, false>(slabs, factors, begin, end);
  } else {
    bf16_gradient ? Update<false, true>(slabs, factors, begin, end)
                  : Update<false, false>(slabs, factors, begin, end);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace {
namespace {
HWY_EXPORT(UpdateRange);
}  // namespace

void AdamWUpdateRange(const AdamWSlabs& slabs, const AdamWFactors& factors, int64_t begin,
                      int64_t end) {
  HWY_DYNAMIC_DISPATCH(UpdateRange)(slabs, factors, begin, end);
}

}  // namespace millrace
#endif  // HWY_ONCE
