// engine/state/quantized_moment.h in vectors. Included once for each target of a kernel
// (hwy/foreach_target.h).
#if defined(MILLRACE_ENGINE_OPTIM_QUANTIZED_MOMENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_ENGINE_OPTIM_QUANTIZED_MOMENT_INL_H_
#undef MILLRACE_ENGINE_OPTIM_QUANTIZED_MOMENT_INL_H_
#else
#define MILLRACE_ENGINE_OPTIM_QUANTIZED_MOMENT_INL_H_
#endif

#include <cstdint>

#include "engine/state/quantized_moment.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {

// DecodeMoment of the codes at `codes`; `factor` is the block's MomentDecodingFactor.
template <MomentCode kCode, class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V DecodeMoments(D f32, const uint8_t* HWY_RESTRICT codes, V factor) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToUnsigned<D> u32;
  const hn::Rebind<uint8_t, D> u8;
  const auto code = hn::PromoteTo(u32, hn::Load(u8, codes));
  const auto one = hn::Set(u32, kOneBits);
  if constexpr (!kCode.has_sign) {
    const auto f = hn::BitCast(f32, hn::Add(hn::ShiftLeft<kMomentCodeShift>(code), one));
    return hn::Mul(hn::Sub(f, hn::Set(f32, 1.0f)), factor);
  } else {
    const auto magnitude = hn::And(code, hn::Set(u32, 0x7fu));
    const auto f = hn::BitCast(f32, hn::Add(hn::ShiftLeft<kMomentCodeShift>(magnitude), one));
    const auto sign = hn::BitCast(f32, hn::ShiftLeft<24>(hn::Xor(code, magnitude)));
    return hn::Xor(hn::Mul(hn::Sub(f, hn::Set(f32, 1.0f)), factor), sign);
  }
}

// EncodeMoment of `value` to `codes`; `factor` is the block's MomentEncodingFactor, `dither` has 16
// bits a lane.
template <MomentCode kCode, class D, class V, class VU>
HWY_INLINE void EncodeMoments(D f32, V value, V factor, VU dither, uint8_t* HWY_RESTRICT codes) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToUnsigned<D> u32;
  const hn::RebindToSigned<D> i32;
  const hn::Rebind<uint8_t, D> u8;
  // Not fused: the definition rounds twice.
  const auto f = hn::Add(hn::Mul(hn::Abs(value), factor), hn::Set(f32, 1.0f));
  const auto place = hn::Sub(hn::BitCast(u32, f), hn::Set(u32, kOneBits - 8));
  const auto dithered = hn::Add(place, hn::ShiftLeft<4>(dither));
  auto code =
      hn::Min(hn::ShiftRight<kMomentCodeShift>(dithered), hn::Set(u32, uint32_t{kCode.largest}));
  if constexpr (kCode.keeps_small) {
    const auto least =
        hn::IfThenElseZero(hn::Gt(value, hn::Zero(f32)), hn::BitCast(f32, hn::Set(u32, 1u)));
    code = hn::Max(code, hn::BitCast(u32, least));
  }
  if constexpr (kCode.has_sign) {
    code = hn::Or(code, hn::And(hn::ShiftRight<24>(hn::BitCast(u32, value)), hn::Set(u32, 0x80u)));
  }
  hn::Store(hn::DemoteTo(u8, hn::BitCast(i32, code)), u8, codes);
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
