// What the vector kernels share: f32 vectors loaded from and stored to f32 or bf16 memory, partial
// vectors at the end of a row, and fast exponentials. Included once for each target of Highway's
// foreach_target.h.
#if defined(MILLRACE_ENGINE_OPS_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_ENGINE_OPS_VECTOR_INL_H_
#undef MILLRACE_ENGINE_OPS_VECTOR_INL_H_
#else
#define MILLRACE_ENGINE_OPS_VECTOR_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engine/base/dtype.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
using DU32 = hn::RebindToUnsigned<DF>;
using DI32 = hn::RebindToSigned<DF>;
using DU16 = hn::Rebind<uint16_t, DF>;

HWY_INLINE VF LoadFull(DF d, const float* p) { return hn::LoadU(d, p); }
HWY_INLINE VF LoadFull(DF d, const BFloat16* p) {
  const auto half = hn::LoadU(DU16(), reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(DU32(), half)));
}

// bf16 bit patterns of v, to nearest even. A NaN that arithmetic makes, or that comes from bf16,
// stays one: its low bits are zero.
HWY_INLINE hn::Vec<DU32> RoundedBits(VF v) {
  const DU32 du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  return hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(du, 0x7fff)), odd));
}

HWY_INLINE void StoreFull(VF v, DF d, float* p) { hn::StoreU(v, d, p); }
HWY_INLINE void StoreFull(VF v, DF, BFloat16* p) {
  const auto bits = hn::BitCast(DI32(), RoundedBits(v));
  hn::StoreU(hn::DemoteTo(DU16(), bits), DU16(), reinterpret_cast<uint16_t*>(p));
}

// The first `count` (at most a vector's) elements; the other lanes are zero.
template <typename T>
HWY_INLINE VF Load(DF d, const T* p, size_t count) {
  if (HWY_LIKELY(count >= hn::Lanes(d))) return LoadFull(d, p);
  HWY_ALIGN T buffer[HWY_MAX_BYTES / 4] = {};
  std::memcpy(buffer, p, count * sizeof(T));
  return LoadFull(d, buffer);
}

template <typename T>
HWY_INLINE void Store(VF v, DF d, T* p, size_t count) {
  if (HWY_LIKELY(count >= hn::Lanes(d))) {
    StoreFull(v, d, p);
  } else {
    HWY_ALIGN T buffer[HWY_MAX_BYTES / 4];
    StoreFull(v, d, buffer);
    std::memcpy(p, buffer, count * sizeof(T));
  }
}

HWY_INLINE float Sum(DF d, VF v) { return hn::GetLane(hn::SumOfLanes(d, v)); }
HWY_INLINE float Max(DF d, VF v) { return hn::GetLane(hn::MaxOfLanes(d, v)); }

// e^x for x in [-87, 88], or NaN; relative error under 2e-7 (2 units in the last place).
HWY_INLINE VF BoundedExp(DF d, VF x) {
  // Adding 1.5 · 2^23 rounds to an integer and leaves it in the low bits.
  const auto magic = hn::Set(d, 12582912.0f);
  const auto shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const auto n = hn::Sub(shifted, magic);
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  // Cephes' expf polynomial on |r| <= ln(2)/2.
  auto p = hn::MulAdd(r, hn::Set(d, 1.9875691500e-4f), hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  p = hn::MulAdd(p, hn::Mul(r, r), hn::Add(r, hn::Set(d, 1.0f)));
  const DI32 di;
  const auto power = hn::Add(hn::ShiftLeft<23>(hn::BitCast(di, shifted)), hn::Set(di, 127 << 23));
  return hn::Mul(p, hn::BitCast(d, power));
}

// e^x for any x: under e^-87 it is that, over e^88 it is that. NaN gives NaN.
HWY_INLINE VF Exp(DF d, VF x) {
  // Where one operand is NaN, x86 takes the second.
  return BoundedExp(d, hn::Min(hn::Set(d, 88.0f), hn::Max(hn::Set(d, -87.0f), x)));
}

// e^x for x <= 0, as Exp.
HWY_INLINE VF ExpOfNegative(DF d, VF x) { return BoundedExp(d, hn::Max(hn::Set(d, -87.0f), x)); }

// 1 / x for |x| in [2^-125, 2^125], relative error under 3e-7.
HWY_INLINE VF Reciprocal(DF d, VF x) {
  const auto two = hn::Set(d, 2.0f);
  auto y = hn::ApproximateReciprocal(x);
  y = hn::Mul(y, hn::NegMulAdd(x, y, two));
#if !HWY_ARCH_X86
  y = hn::Mul(y, hn::NegMulAdd(x, y, two));  // others begin with 8 bits
#endif
  return y;
}

// 1 / (1 + e^-x) for x in [-86, 86], or NaN.
HWY_INLINE VF BoundedSigmoid(DF d, VF x) {
  return Reciprocal(d, hn::Add(hn::Set(d, 1.0f), BoundedExp(d, hn::Neg(x))));
}

HWY_INLINE VF Clamp(DF d, VF x, float bound) {
  return hn::Min(hn::Set(d, bound), hn::Max(hn::Set(d, -bound), x));
}

// tanh of any x, or NaN; relative error under 3e-7.
HWY_INLINE VF Tanh(DF d, VF x) {
  // Cephes' tanhf: x + x³·P(x²) near zero, else 1 − 2 / (e^2|x| + 1), which is 1 from 9.1 on.
  const auto square = hn::Mul(x, x);
  auto p = hn::MulAdd(square, hn::Set(d, -5.70498872745e-3f), hn::Set(d, 2.06390887954e-2f));
  p = hn::MulAdd(p, square, hn::Set(d, -5.37397155531e-2f));
  p = hn::MulAdd(p, square, hn::Set(d, 1.33314422036e-1f));
  p = hn::MulAdd(p, square, hn::Set(d, -3.33332819422e-1f));
  const auto near = hn::MulAdd(hn::Mul(p, square), x, x);
  const auto one = hn::Set(d, 1.0f), size = hn::Abs(x);
  // Where one operand is NaN, x86 takes the second.
  const auto power = BoundedExp(d, hn::Min(hn::Set(d, 20.0f), hn::Add(size, size)));
  const auto far = hn::NegMulAdd(hn::Set(d, 2.0f), Reciprocal(d, hn::Add(power, one)), one);
  return hn::IfThenElse(hn::Lt(size, hn::Set(d, 0.625f)), near, hn::CopySign(far, x));
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#endif
