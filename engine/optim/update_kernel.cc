#include "engine/optim/update_kernel.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/optim/update_kernel.cc"
// Scalable vectors cannot be members; their processors take the NEON path.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
// After highway.h.
#include "engine/optim/dither-inl.h"
#include "engine/optim/quantized_moment-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Segments are whole vectors because they end on multiples of 32.
using F32 = hn::CappedTag<float, 16>;
using I32 = hn::RebindToSigned<F32>;
using U32 = hn::RebindToUnsigned<F32>;
using I16 = hn::Rebind<int16_t, F32>;
using U16 = hn::Rebind<uint16_t, F32>;
using V = hn::Vec<F32>;

HWY_INLINE V LoadBF16(const uint16_t* from) {
  const auto wide = hn::PromoteTo(U32(), hn::Load(U16(), from));
  return hn::BitCast(F32(), hn::ShiftLeft<16>(wide));
}

// Where weights are, and how they are read and rounded.
template <WeightFormat kFormat>
struct Weights {
  explicit Weights(const UpdateSlabs& slabs)
      : high(static_cast<uint16_t*>(slabs.weights)),
        whole(static_cast<float*>(slabs.weights)),
        low(slabs.low_halves) {}

  HWY_INLINE V Load(int64_t i) const {
    if constexpr (kFormat == WeightFormat::kF32) {
      return hn::Load(F32(), whole + i);
    } else if constexpr (kFormat == WeightFormat::kBF16) {
      return LoadBF16(high + i);
    } else {
      const auto upper = hn::BitCast(I32(), LoadBF16(high + i));
      return hn::BitCast(F32(), hn::Add(upper, hn::PromoteTo(I32(), hn::Load(I16(), low + i))));
    }
  }

  HWY_INLINE void Store(V w, int64_t i, const uint16_t* dither) const {
    if constexpr (kFormat == WeightFormat::kF32) {
      hn::Store(w, F32(), whole + i);
    } else if constexpr (kFormat == WeightFormat::kBF16) {
      const auto random = hn::PromoteTo(U32(), hn::Load(U16(), dither));
      const auto cut = hn::ShiftRight<16>(hn::Add(hn::BitCast(U32(), w), random));
      hn::Store(hn::DemoteTo(U16(), hn::BitCast(I32(), cut)), U16(), high + i);
    } else {
      const auto bits = hn::BitCast(I32(), w);
      const auto up = hn::Add(bits, hn::Set(I32(), 0x8000));
      const auto upper = hn::BitCast(I32(), hn::ShiftRight<16>(hn::BitCast(U32(), up)));
      hn::Store(hn::DemoteTo(U16(), upper), U16(), high + i);
      hn::Store(hn::DemoteTo(I16(), hn::Sub(bits, hn::ShiftLeft<16>(upper))), I16(), low + i);
    }
  }

  uint16_t* HWY_RESTRICT high;
  float* HWY_RESTRICT whole;
  int16_t* HWY_RESTRICT low;
};

// The optimizers: each changes w (times `keep`, for decay) and its moments by the gradient g.
struct AdamW {
  static constexpr bool kSecondMoment = true;
  explicit AdamW(const UpdateFactors& f)
      : one_minus_beta1(hn::Set(F32(), f.one_minus_beta1)),
        beta2(hn::Set(F32(), f.beta2)),
        one_minus_beta2(hn::Set(F32(), f.one_minus_beta2)),
        step_size(hn::Set(F32(), f.step_size)),
        inverse_sqrt_bias2(hn::Set(F32(), f.inverse_sqrt_bias2)),
        epsilon(hn::Set(F32(), f.epsilon)) {}

  HWY_INLINE void Step(V g, V keep, V& w, V& m, V& v) const {
    m = hn::MulAdd(hn::Sub(g, m), one_minus_beta1, m);
    v = hn::MulAdd(hn::Mul(g, g), one_minus_beta2, hn::Mul(v, beta2));
    const V denominator = hn::MulAdd(hn::Sqrt(v), inverse_sqrt_bias2, epsilon);
    w = hn::NegMulAdd(step_size, hn::Div(m, denominator), hn::Mul(w, keep));
  }

  V one_minus_beta1, beta2, one_minus_beta2, step_size, inverse_sqrt_bias2, epsilon;
};

struct Sgd {
  static constexpr bool kSecondMoment = false;
  explicit Sgd(const UpdateFactors& f)
      : momentum(hn::Set(F32(), f.momentum)), step_size(hn::Set(F32(), f.step_size)) {}

  HWY_INLINE void Step(V g, V keep, V& w, V& m, V&) const {
    m = hn::MulAdd(m, momentum, g);
    w = hn::NegMulAdd(step_size, m, hn::Mul(w, keep));
  }

  V momentum, step_size;
};

struct Lion {
  static constexpr bool kSecondMoment = false;
  explicit Lion(const UpdateFactors& f)
      : one_minus_beta1(hn::Set(F32(), f.one_minus_beta1)),
        one_minus_beta2(hn::Set(F32(), f.one_minus_beta2)),
        step_size(hn::Set(F32(), f.step_size)) {}

  HWY_INLINE void Step(V g, V keep, V& w, V& m, V&) const {
    const V change = hn::Sub(g, m);
    const V c = hn::MulAdd(change, one_minus_beta1, m);
    const V step = hn::IfThenElseZero(hn::Ne(c, hn::Zero(F32())), hn::CopySign(step_size, c));
    w = hn::Sub(hn::Mul(w, keep), step);
    m = hn::MulAdd(change, one_minus_beta2, m);
  }

  V one_minus_beta1, one_minus_beta2, step_size;
};

// Encodes a block's new moment with an exponent of its own. A shift of 16 takes the upper half of
// the dither, 0 the lower.
template <MomentCode kCode, int kDitherShift>
HWY_INLINE void EncodeBlock(const float* HWY_RESTRICT moment, V largest,
                            const uint32_t* HWY_RESTRICT dither, const QuantizedMoment& to,
                            int64_t block) {
  const uint8_t exponent = MomentExponent(hn::GetLane(hn::MaxOfLanes(F32(), largest)));
  to.exponents[block / kMomentBlock] = exponent;
  const V factor = hn::Set(F32(), MomentEncodingFactor(kCode, exponent));
  for (int64_t i = 0; i < kMomentBlock; i += static_cast<int64_t>(hn::Lanes(F32()))) {
    const auto words = hn::Load(U32(), dither + i);
    const auto half = hn::And(hn::ShiftRight<kDitherShift>(words), hn::Set(U32(), 0xffffu));
    EncodeMoments<kCode>(F32(), hn::Load(F32(), moment + i), factor, half, to.codes + block + i);
  }
}

template <class Optimizer, WeightFormat kWeights, bool kQuantized, bool kBF16Gradient>
void Update(const UpdateSlabs& slabs, const UpdateFactors& factors, const DecaySegment* segment,
            int64_t begin, int64_t end) {
  static_assert(kMomentBlock == 2 * kWeightDitherGroup);
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(F32()));
  constexpr bool kSecond = Optimizer::kSecondMoment;
  const Optimizer optimizer(factors);
  const Weights<kWeights> weights(slabs);
  const V gradient_factor = hn::Set(F32(), factors.gradient);
  float* HWY_RESTRICT first = slabs.first_moment;
  float* HWY_RESTRICT second = slabs.second_moment;
  const uint16_t* HWY_RESTRICT gradient_bf16 = static_cast<const uint16_t*>(slabs.gradient);
  const float* HWY_RESTRICT gradient_f32 = static_cast<const float*>(slabs.gradient);
  const auto lanes64 = hn::Iota(DitherU64(), 0);
  const auto lanes32 = hn::Iota(DitherU32(), 0);
  HWY_ALIGN float new_first[kMomentBlock];
  HWY_ALIGN float new_second[kMomentBlock];
  HWY_ALIGN uint32_t dither[kMomentBlock];
  HWY_ALIGN uint32_t weight_words[kMomentBlock / 2];
  const uint16_t* const weight_dither = reinterpret_cast<const uint16_t*>(weight_words);

  while (segment->end <= begin) ++segment;
  for (int64_t block = begin; block < end; block += kMomentBlock) {
    const int64_t block_end = block + kMomentBlock;
    const uint64_t element = slabs.first_element + static_cast<uint64_t>(block);
    if constexpr (kWeights == WeightFormat::kBF16) {
      FillWeightDither(factors.rounding, element / kWeightDitherGroup, lanes64, weight_words);
    }
    V first_factor = hn::Zero(F32()), second_factor = hn::Zero(F32());
    V largest_first = hn::Zero(F32()), largest_second = hn::Zero(F32());
    if constexpr (kQuantized) {
      const int64_t at = block / kMomentBlock;
      first_factor =
          hn::Set(F32(), MomentDecodingFactor(kFirstMomentCode, slabs.first_codes.exponents[at]));
      if constexpr (kSecond) {
        second_factor = hn::Set(
            F32(), MomentDecodingFactor(kSecondMomentCode, slabs.second_codes.exponents[at]));
      }
    }
    for (int64_t i = block; i < block_end; ++segment) {
      const V keep = hn::Set(F32(), segment->keep);
      const int64_t last = std::min(block_end, segment->end);
      for (; i < last; i += kLanes) {
        V g = kBF16Gradient ? LoadBF16(gradient_bf16 + i) : hn::Load(F32(), gradient_f32 + i);
        g = hn::Mul(g, gradient_factor);
        V w = weights.Load(i);
        V m = hn::Zero(F32()), v = hn::Zero(F32());
        if constexpr (kQuantized) {
          m = DecodeMoments<kFirstMomentCode>(F32(), slabs.first_codes.codes + i, first_factor);
          if constexpr (kSecond) {
            v = DecodeMoments<kSecondMomentCode>(F32(), slabs.second_codes.codes + i,
                                                 second_factor);
          }
        } else {
          m = hn::Load(F32(), first + i);
          if constexpr (kSecond) v = hn::Load(F32(), second + i);
        }
        optimizer.Step(g, keep, w, m, v);
        weights.Store(w, i, weight_dither + (i - block));
        if constexpr (kQuantized) {
          largest_first = hn::Max(largest_first, hn::Abs(m));
          hn::Store(m, F32(), new_first + (i - block));
          if constexpr (kSecond) {
            largest_second = hn::Max(largest_second, v);
            hn::Store(v, F32(), new_second + (i - block));
          }
        } else {
          hn::Store(m, F32(), first + i);
          if constexpr (kSecond) hn::Store(v, F32(), second + i);
        }
      }
      if (segment->end > block_end) break;
    }
    if constexpr (kQuantized) {
      FillMomentDither(factors.rounding, element, kMomentBlock, lanes32, dither);
      EncodeBlock<kFirstMomentCode, 16>(new_first, largest_first, dither, slabs.first_codes, block);
      if constexpr (kSecond) {
        EncodeBlock<kSecondMomentCode, 0>(new_second, largest_second, dither, slabs.second_codes,
                                          block);
      }
    }
  }
}

using Function = void (*)(const UpdateSlabs&, const UpdateFactors&, const DecaySegment*, int64_t,
                          int64_t);

template <class Optimizer, bool kBF16Gradient>
Function Select(WeightFormat weights, bool quantized) {
  switch (weights) {
    case WeightFormat::kF32:
      return quantized ? Update<Optimizer, WeightFormat::kF32, true, kBF16Gradient>
                       : Update<Optimizer, WeightFormat::kF32, false, kBF16Gradient>;
    case WeightFormat::kSplit:
      return quantized ? Update<Optimizer, WeightFormat::kSplit, true, kBF16Gradient>
                       : Update<Optimizer, WeightFormat::kSplit, false, kBF16Gradient>;
    case WeightFormat::kBF16:
      return Update<Optimizer, WeightFormat::kBF16, true, kBF16Gradient>;
  }
  return nullptr;
}

template <class Optimizer>
Function SelectFor(const UpdateSlabs& slabs) {
  const bool quantized = slabs.first_codes.codes != nullptr;
  return slabs.gradient_dtype == DType::kBF16
             ? Select<Optimizer, true>(slabs.weight_format, quantized)
             : Select<Optimizer, false>(slabs.weight_format, quantized);
}

void UpdateElements(const UpdateSlabs& slabs, const UpdateFactors& factors,
                    const DecaySegment* segments, int64_t begin, int64_t end) {
  Function update = nullptr;
  switch (factors.optimizer) {
    case OptimizerKind::kAdamW:
      update = SelectFor<AdamW>(slabs);
      break;
    case OptimizerKind::kSgd:
      update = SelectFor<Sgd>(slabs);
      break;
    case OptimizerKind::kLion:
      update = SelectFor<Lion>(slabs);
      break;
  }
  update(slabs, factors, segments, begin, end);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace {
namespace {
HWY_EXPORT(UpdateElements);
}  // namespace

void UpdateRange(const UpdateSlabs& slabs, const UpdateFactors& factors,
                 absl::Span<const DecaySegment> segments, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(UpdateElements)(slabs, factors, segments.data(), begin, end);
}

}  // namespace millrace
#endif  // HWY_ONCE
