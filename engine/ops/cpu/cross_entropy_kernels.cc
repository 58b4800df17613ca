#include "engine/ops/cpu/cross_entropy_kernels.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/cpu/cross_entropy_kernels.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, as Highway wants it.
#include "engine/ops/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {

// x · (1 − (l · inverse_cap)²)
HWY_INLINE VF TimesCapSlope(DF d, VF x, VF l, VF inverse_cap) {
  const auto ratio = hn::Mul(l, inverse_cap);
  return hn::Mul(x, hn::NegMulAdd(ratio, ratio, hn::Set(d, 1.0f)));
}

template <typename T>
void ExponentialsImpl(const float* logits, int64_t logits_stride, int64_t rows, int64_t columns,
                      float softcap, float* row_max, float* row_sum, T* exponentials,
                      int64_t exponentials_stride) {
  const DF d;
  const int64_t lanes = hn::Lanes(d);
  const auto inverse_cap = hn::Set(d, softcap > 0 ? 1.0f / softcap : 0.0f);
  for (int64_t row = 0; row < rows; ++row) {
    const float* l = logits + row * logits_stride;
    auto max_v = hn::Set(d, -std::numeric_limits<float>::infinity());
    int64_t j = 0;
    for (; j + lanes <= columns; j += lanes) max_v = hn::Max(max_v, hn::LoadU(d, l + j));
    float largest = Max(d, max_v);
    for (; j < columns; ++j) largest = std::max(largest, l[j]);
    const auto shift = hn::Set(d, largest);
    auto sum = hn::Zero(d);
    T* e = exponentials == nullptr ? nullptr : exponentials + row * exponentials_stride;
    for (j = 0; j < columns; j += lanes) {
      const int64_t left = columns - j;
      const auto l_v = Load(d, l + j, left);
      auto exponential = ExpOfNegative(d, hn::Sub(l_v, shift));
      if (left < lanes) exponential = hn::IfThenElseZero(hn::FirstN(d, left), exponential);
      sum = hn::Add(sum, exponential);
      if (e == nullptr) continue;
      if (softcap > 0) exponential = TimesCapSlope(d, exponential, l_v, inverse_cap);
      Store(exponential, d, e + j, left);
    }
    row_max[row] = largest;
    row_sum[row] = Sum(d, sum);
  }
}

template <typename T>
void GradientsImpl(const float* logits, int64_t logits_stride, int64_t rows, int64_t columns,
                   float softcap, const float* row_max, const float* row_factor, T* gradients,
                   int64_t gradients_stride) {
  const DF d;
  const int64_t lanes = hn::Lanes(d);
  const auto inverse_cap = hn::Set(d, softcap > 0 ? 1.0f / softcap : 0.0f);
  for (int64_t row = 0; row < rows; ++row) {
    const float* l = logits + row * logits_stride;
    T* g = gradients + row * gradients_stride;
    if (row_factor[row] == 0.0f) {
      std::fill(g, g + columns, T{});
      continue;
    }
    const auto shift = hn::Set(d, row_max[row]);
    const auto factor = hn::Set(d, row_factor[row]);
    for (int64_t j = 0; j < columns; j += lanes) {
      const int64_t left = columns - j;
      const auto l_v = Load(d, l + j, left);
      auto gradient = hn::Mul(ExpOfNegative(d, hn::Sub(l_v, shift)), factor);
      if (softcap > 0) gradient = TimesCapSlope(d, gradient, l_v, inverse_cap);
      Store(gradient, d, g + j, left);
    }
  }
}

void ExponentialsAny(const float* logits, int64_t logits_stride, int64_t rows, int64_t columns,
                     float softcap, float* row_max, float* row_sum, DType type, void* exponentials,
                     int64_t exponentials_stride) {
  type == DType::kBF16
      ? ExponentialsImpl(logits, logits_stride, rows, columns, softcap, row_max, row_sum,
                         static_cast<BFloat16*>(exponentials), exponentials_stride)
      : ExponentialsImpl(logits, logits_stride, rows, columns, softcap, row_max, row_sum,
                         static_cast<float*>(exponentials), exponentials_stride);
}

void GradientsAny(const float* logits, int64_t logits_stride, int64_t rows, int64_t columns,
                  float softcap, const float* row_max, const float* row_factor, DType type,
                  void* gradients, int64_t gradients_stride) {
  type == DType::kBF16
      ? GradientsImpl(logits, logits_stride, rows, columns, softcap, row_max, row_factor,
                      static_cast<BFloat16*>(gradients), gradients_stride)
      : GradientsImpl(logits, logits_stride, rows, columns, softcap, row_max, row_factor,
                      static_cast<float*>(gradients), gradients_stride);
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace {

HWY_EXPORT(ExponentialsAny);
HWY_EXPORT(GradientsAny);

void ExponentialRows(const float* logits, int64_t logits_stride, int64_t rows, int64_t columns,
                     float softcap, float* row_max, float* row_sum, DType type, void* exponentials,
                     int64_t exponentials_stride) {
  HWY_DYNAMIC_DISPATCH(ExponentialsAny)
  (logits, logits_stride, rows, columns, softcap, row_max, row_sum, type, exponentials,
   exponentials_stride);
}

void GradientRows(const float* logits, int64_t logits_stride, int64_t rows, int64_t columns,
                  float softcap, const float* row_max, const float* row_factor, DType type,
                  void* gradients, int64_t gradients_stride) {
  HWY_DYNAMIC_DISPATCH(GradientsAny)
  (logits, logits_stride, rows, columns, softcap, row_max, row_factor, type, gradients,
   gradients_stride);
}

}  // namespace millrace
#endif  // HWY_ONCE
