#include "engine/ops/cpu/norm_kernels.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/cpu/norm_kernels.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, as Highway wants it.
#include "engine/ops/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {

HWY_INLINE int64_t StrideOr(int64_t stride, int64_t row) { return stride > 0 ? stride : row; }

// mean(x)
template <typename T>
float RowMean(const T* x, size_t width) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  auto sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  size_t i = 0;
  for (; i + 4 * lanes <= width; i += 4 * lanes) {
    sum0 = hn::Add(sum0, LoadFull(d, x + i));
    sum1 = hn::Add(sum1, LoadFull(d, x + i + lanes));
    sum2 = hn::Add(sum2, LoadFull(d, x + i + 2 * lanes));
    sum3 = hn::Add(sum3, LoadFull(d, x + i + 3 * lanes));
  }
  for (; i < width; i += lanes) sum0 = hn::Add(sum0, Load(d, x + i, width - i));
  return Sum(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))) / static_cast<float>(width);
}

// mean((x - mean)²)
template <typename T>
float RowVariance(const T* x, size_t width, float mean) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  const auto mean_v = hn::Set(d, mean);
  auto sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  size_t i = 0;
  for (; i + 4 * lanes <= width; i += 4 * lanes) {
    const auto a = hn::Sub(LoadFull(d, x + i), mean_v);
    const auto b = hn::Sub(LoadFull(d, x + i + lanes), mean_v);
    const auto c = hn::Sub(LoadFull(d, x + i + 2 * lanes), mean_v);
    const auto e = hn::Sub(LoadFull(d, x + i + 3 * lanes), mean_v);
    sum0 = hn::MulAdd(a, a, sum0);
    sum1 = hn::MulAdd(b, b, sum1);
    sum2 = hn::MulAdd(c, c, sum2);
    sum3 = hn::MulAdd(e, e, sum3);
  }
  for (; i < width; i += lanes) {
    // Lanes past the end must count as the mean, not as zero.
    const auto valid = hn::FirstN(d, width - i);
    const auto a = hn::IfThenElseZero(valid, hn::Sub(Load(d, x + i, width - i), mean_v));
    sum0 = hn::MulAdd(a, a, sum0);
  }
  return Sum(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))) / static_cast<float>(width);
}

// What a row is multiplied with: the weight, or 1 + weight.
template <typename T>
HWY_INLINE VF LoadWeight(DF d, const T* p, size_t count, bool plus_one) {
  const auto weight = Load(d, p, count);
  return plus_one ? hn::Add(weight, hn::Set(d, 1.0f)) : weight;
}

template <typename T>
void ForwardImpl(const NormForward& op, int64_t begin, int64_t end) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  const size_t width = op.width;
  const int64_t row = op.groups * op.width;
  const int64_t x_stride = StrideOr(op.x_stride, row), y_stride = StrideOr(op.y_stride, row);
  const T* weight = static_cast<const T*>(op.weight);
  const T* bias = static_cast<const T*>(op.bias);
  for (int64_t segment = begin * op.groups; segment < end * op.groups; ++segment) {
    const int64_t token = segment / op.groups, column = segment % op.groups * op.width;
    const T* x = static_cast<const T*>(op.x) + token * x_stride + column;
    const T* residual = op.residual == nullptr
                            ? nullptr
                            : static_cast<const T*>(op.residual) + token * row + column;
    T* y = op.y == nullptr ? nullptr : static_cast<T*>(op.y) + token * y_stride + column;
    const float mean = op.layer_norm ? RowMean(x, width) : 0.0f;
    const float rstd =
        1.0f / std::sqrt(RowVariance(x, width, mean) + static_cast<float>(op.epsilon));
    const auto mean_v = hn::Set(d, mean), rstd_v = hn::Set(d, rstd);
    for (size_t i = 0; y != nullptr && i < width; i += lanes) {
      const size_t left = width - i;
      const auto normalized = hn::Mul(hn::Sub(Load(d, x + i, left), mean_v), rstd_v);
      auto result = hn::Mul(normalized, LoadWeight(d, weight + i, left, op.plus_one));
      if (bias != nullptr) result = hn::Add(result, Load(d, bias + i, left));
      if (residual != nullptr) result = hn::Add(result, Load(d, residual + i, left));
      Store(result, d, y + i, left);
    }
    if (op.mean != nullptr) op.mean[segment] = mean;
    op.rstd[segment] = rstd;
  }
}

// With x̂ = (x − mean) · rstd and g = dy ∘ weight:
//   dx = rstd · (g − mean(g) − x̂ · mean(g ∘ x̂)), without the middle term for RMSNorm.
template <typename T>
void BackwardImpl(const NormBackward& op, int64_t begin, int64_t end, float* dweight,
                  float* dbias) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  const size_t width = op.width;
  const int64_t row = op.groups * op.width;
  const int64_t x_stride = StrideOr(op.x_stride, row);
  const int64_t dy_stride = StrideOr(op.dy_stride, row), dx_stride = StrideOr(op.dx_stride, row);
  const T* weight = static_cast<const T*>(op.weight);
  for (int64_t segment = begin * op.groups; segment < end * op.groups; ++segment) {
    const int64_t token = segment / op.groups, column = segment % op.groups * op.width;
    const T* x = static_cast<const T*>(op.x) + token * x_stride + column;
    const T* dy = static_cast<const T*>(op.dy) + token * dy_stride + column;
    const T* residual = op.residual == nullptr
                            ? nullptr
                            : static_cast<const T*>(op.residual) + token * row + column;
    T* dx = static_cast<T*>(op.dx) + token * dx_stride + column;
    const auto mean = hn::Set(d, op.layer_norm ? op.mean[segment] : 0.0f);
    const auto rstd = hn::Set(d, op.rstd[segment]);
    auto g_sum = hn::Zero(d), gx_sum = hn::Zero(d);
    for (size_t i = 0; i < width; i += lanes) {
      const size_t left = width - i;
      const auto normalized = hn::Mul(hn::Sub(Load(d, x + i, left), mean), rstd);
      const auto dy_v = Load(d, dy + i, left);  // zero past the end, and so are the products
      const auto g = hn::Mul(dy_v, LoadWeight(d, weight + i, left, op.plus_one));
      g_sum = hn::Add(g_sum, g);
      gx_sum = hn::MulAdd(g, normalized, gx_sum);
      if (dweight != nullptr) {
        const auto old = Load(d, dweight + i, left);
        Store(hn::MulAdd(dy_v, normalized, old), d, dweight + i, left);
      }
      if (dbias != nullptr) Store(hn::Add(dy_v, Load(d, dbias + i, left)), d, dbias + i, left);
    }
    const float g_mean = op.layer_norm ? Sum(d, g_sum) / static_cast<float>(width) : 0.0f;
    const auto g_mean_v = hn::Set(d, g_mean);
    const auto gx_mean = hn::Set(d, Sum(d, gx_sum) / static_cast<float>(width));
    for (size_t i = 0; i < width; i += lanes) {
      const size_t left = width - i;
      const auto normalized = hn::Mul(hn::Sub(Load(d, x + i, left), mean), rstd);
      const auto g = hn::Mul(Load(d, dy + i, left), LoadWeight(d, weight + i, left, op.plus_one));
      auto result = hn::Mul(rstd, hn::NegMulAdd(normalized, gx_mean, hn::Sub(g, g_mean_v)));
      if (residual != nullptr) result = hn::Add(result, Load(d, residual + i, left));
      Store(result, d, dx + i, left);
    }
  }
}

void Forward(const NormForward& op, DType type, int64_t begin, int64_t end) {
  type == DType::kBF16 ? ForwardImpl<BFloat16>(op, begin, end) : ForwardImpl<float>(op, begin, end);
}

void Backward(const NormBackward& op, DType type, int64_t begin, int64_t end, float* dweight,
              float* dbias) {
  type == DType::kBF16 ? BackwardImpl<BFloat16>(op, begin, end, dweight, dbias)
                       : BackwardImpl<float>(op, begin, end, dweight, dbias);
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace {

HWY_EXPORT(Forward);
HWY_EXPORT(Backward);

void NormForwardRows(const NormForward& op, DType type, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(Forward)(op, type, begin, end);
}

void NormBackwardRows(const NormBackward& op, DType type, int64_t begin, int64_t end,
                      float* dweight, float* dbias) {
  HWY_DYNAMIC_DISPATCH(Backward)(op, type, begin, end, dweight, dbias);
}

}  // namespace millrace
#endif  // HWY_ONCE
