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

using DitherU64 = hwy::HWY_NAMESPACE::CappedTag<uint64_t, 8>;
using DitherU32 = hwy::HWY_NAMESPACE::CappedTag<uint32_t, 16>;

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

// WeightDither of two groups of elements: `words`, 64-byte aligned, are their halves in order on a
// little-endian machine. Two at once, because each is a chain of products. `lanes` is Iota(u64, 0),
// which Highway makes in memory: once will do.
template <class V>
HWY_INLINE void FillWeightDither(RoundingKey key, uint64_t group, V lanes,
                                 uint32_t* HWY_RESTRICT words) {
  namespace hn = hwy::HWY_NAMESPACE;
  // A block a lane. Products take the lower halves of lanes alone, so what comes to lie in the
  // upper ones does not matter.
  const DitherU64 u64;
  const hn::Rebind<uint32_t, DitherU64> half;
  const uint64_t stream = WeightDitherStream(key);
  const auto multiplier0 = hn::Set(u64, 0xD2511F53u);
  const auto multiplier1 = hn::Set(u64, 0xCD9E8D57u);
  for (uint64_t lane = 0; lane < 8; lane += hn::Lanes(u64)) {
    auto a0 = hn::Add(lanes, hn::Set(u64, 8 * group + lane));
    auto b0 = hn::Add(lanes, hn::Set(u64, 8 * (group + 1) + lane));
    auto a1 = hn::ShiftRight<32>(a0), b1 = hn::ShiftRight<32>(b0);
    auto a2 = hn::Set(u64, stream), b2 = a2;
    auto a3 = hn::Set(u64, stream >> 32), b3 = a3;
    uint32_t k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const auto key0 = hn::Set(u64, k0), key1 = hn::Set(u64, k1);
      const auto p0 = MulLowerHalves(u64, a0, multiplier0);
      const auto q0 = MulLowerHalves(u64, b0, multiplier0);
      const auto p1 = MulLowerHalves(u64, a2, multiplier1);
      const auto q1 = MulLowerHalves(u64, b2, multiplier1);
      a0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), a1), key0);
      b0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(q1), b1), key0);
      a2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), a3), key1);
      b2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(q0), b3), key1);
      a1 = p1, b1 = q1, a3 = p0, b3 = q0;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    uint32_t* const to = words + lane;
    hn::StoreU(hn::TruncateTo(half, a0), half, to);
    hn::StoreU(hn::TruncateTo(half, a1), half, to + 8);
    hn::StoreU(hn::TruncateTo(half, a2), half, to + 16);
    hn::StoreU(hn::TruncateTo(half, a3), half, to + 24);
    hn::StoreU(hn::TruncateTo(half, b0), half, to + 32);
    hn::StoreU(hn::TruncateTo(half, b1), half, to + 40);
    hn::StoreU(hn::TruncateTo(half, b2), half, to + 48);
    hn::StoreU(hn::TruncateTo(half, b3), half, to + 56);
  }
}

// MomentDither of `count` elements from `element` on, multiples of 16, to `words`, 64-byte aligned.
// `lanes` is Iota(u32, 0).
template <class V>
HWY_INLINE void FillMomentDither(RoundingKey key, uint64_t element, int64_t count, V lanes,
                                 uint32_t* HWY_RESTRICT words) {
  namespace hn = hwy::HWY_NAMESPACE;
  const DitherU32 u32;
  const auto hash_key = hn::Set(u32, MomentDitherKey(key.seed, element));
  const auto rotation = hn::Set(u32, static_cast<uint32_t>(key.step) * kMomentRotation);
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(hn::Lanes(u32))) {
    auto x = hn::Set(u32, static_cast<uint32_t>(element) + static_cast<uint32_t>(i));
    x = hn::Xor(hn::Add(x, lanes), hash_key);
    x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(u32, 0x85ebca6bu));
    x = hn::Mul(hn::Xor(x, hn::ShiftRight<13>(x)), hn::Set(u32, 0xc2b2ae35u));
    hn::Store(hn::Add(hn::Xor(x, hn::ShiftRight<16>(x)), rotation), u32, words + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
