// dither.h in vectors. Included once for each target of a kernel (hwy/foreach_target.h).
#if defined(MILLRACE_ENGINE_OPTIM_DITHER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_ENGINE_OPTIM_DITHER_INL_H_
#undef MILLRACE_ENGINE_OPTIM_DITHER_INL_H_
#else
#define MILLRACE_ENGINE_OPTIM_DITHER_INL_H_
#endif

#include <cstdint>

#include "engine/optim/dither.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {

// Products of the lower halves of lanes.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V MulLowerHalves(D u64, V a, V b) {
  namespace hn = hwy::HWY_NAMESPACE;
#if HWY_TARGET == HWY_SCALAR
  const auto mask = hn::Set(u64, 0xffffffffu);
  return hn::Mul(hn::And(a, mask), hn::And(b, mask));
#else
  const hn::RepartitionToNarrow<D> u32;
  return hn::MulEven(hn::BitCast(u32, a), hn::BitCast(u32, b));
#endif
}

// WeightDither of a group's 64 elements: `words`, 64-byte aligned, are their halves in order on a
// little-endian machine.
HWY_INLINE void FillWeightDither(RoundingKey key, uint64_t group, uint32_t* HWY_RESTRICT words) {
  namespace hn = hwy::HWY_NAMESPACE;
  // A block a lane. Products take the lower halves of lanes alone, so what comes to lie in the
  // upper ones does not matter.
  const hn::CappedTag<uint64_t, 8> u64;
  const hn::Rebind<uint32_t, decltype(u64)> half;
  const uint64_t stream = WeightDitherStream(key);
  const auto multiplier0 = hn::Set(u64, 0xD2511F53u);
  const auto multiplier1 = hn::Set(u64, 0xCD9E8D57u);
  for (uint64_t lane = 0; lane < 8; lane += hn::Lanes(u64)) {
    auto c0 = hn::Iota(u64, 8 * group + lane);
    auto c1 = hn::ShiftRight<32>(c0);
    auto c2 = hn::Set(u64, stream);
    auto c3 = hn::Set(u64, stream >> 32);
    uint32_t k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const auto p0 = MulLowerHalves(u64, c0, multiplier0);
      const auto p1 = MulLowerHalves(u64, c2, multiplier1);
      c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c1), hn::Set(u64, k0));
      c1 = p1;
      c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c3), hn::Set(u64, k1));
      c3 = p0;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    hn::StoreU(hn::TruncateTo(half, c0), half, words + lane);
    hn::StoreU(hn::TruncateTo(half, c1), half, words + 8 + lane);
    hn::StoreU(hn::TruncateTo(half, c2), half, words + 16 + lane);
    hn::StoreU(hn::TruncateTo(half, c3), half, words + 24 + lane);
  }
}

// MomentDither of the elements whose lower 32 bits are in `elements`; `key` is their
// MomentDitherKey, `rotation` is step · kMomentRotation.
template <class D, class V>
HWY_INLINE V MomentDithers(D u32, V elements, V key, V rotation) {
  namespace hn = hwy::HWY_NAMESPACE;
  auto x = hn::Xor(elements, key);
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(u32, 0x85ebca6bu));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<13>(x)), hn::Set(u32, 0xc2b2ae35u));
  return hn::Add(hn::Xor(x, hn::ShiftRight<16>(x)), rotation);
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
