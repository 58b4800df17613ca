#include "engine/ops/reduce_kernels.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/reduce_kernels.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, as Highway wants it.
#include "engine/ops/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {

// Sums of this many rows are made in registers and then added: shorter chains of additions, and a
// smaller error.
constexpr int64_t kRowBlock = 64;

template <typename T>
void ColumnSumsImpl(const T* x, int64_t rows, int64_t columns, int64_t stride, float* sums) {
  const DF d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t row = 0; row < rows; row += kRowBlock) {
    const int64_t end = std::min(rows, row + kRowBlock);
    int64_t j = 0;
    for (; j + 4 * lanes <= columns; j += 4 * lanes) {
      auto sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
      for (int64_t i = row; i < end; ++i) {
        const T* p = x + i * stride + j;
        sum0 = hn::Add(sum0, LoadFull(d, p));
        sum1 = hn::Add(sum1, LoadFull(d, p + lanes));
        sum2 = hn::Add(sum2, LoadFull(d, p + 2 * lanes));
        sum3 = hn::Add(sum3, LoadFull(d, p + 3 * lanes));
      }
      if (row > 0) {
        sum0 = hn::Add(sum0, hn::LoadU(d, sums + j));
        sum1 = hn::Add(sum1, hn::LoadU(d, sums + j + lanes));
        sum2 = hn::Add(sum2, hn::LoadU(d, sums + j + 2 * lanes));
        sum3 = hn::Add(sum3, hn::LoadU(d, sums + j + 3 * lanes));
      }
      hn::StoreU(sum0, d, sums + j);
      hn::StoreU(sum1, d, sums + j + lanes);
      hn::StoreU(sum2, d, sums + j + 2 * lanes);
      hn::StoreU(sum3, d, sums + j + 3 * lanes);
    }
    for (; j < columns; j += lanes) {
      const size_t left = columns - j;
      auto sum = hn::Zero(d);
      for (int64_t i = row; i < end; ++i) sum = hn::Add(sum, Load(d, x + i * stride + j, left));
      if (row > 0) sum = hn::Add(sum, Load(d, sums + j, left));
      Store(sum, d, sums + j, left);
    }
  }
  if (rows == 0) std::fill(sums, sums + columns, 0.0f);
}

void ColumnSumsAny(const void* x, DType type, int64_t rows, int64_t columns, int64_t stride,
                   float* sums) {
  type == DType::kBF16
      ? ColumnSumsImpl(static_cast<const BFloat16*>(x), rows, columns, stride, sums)
      : ColumnSumsImpl(static_cast<const float*>(x), rows, columns, stride, sums);
}

template <typename T>
void AddToImpl(const T* from, int64_t count, float* to) {
  const DF d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t i = 0; i < count; i += lanes) {
    Store(hn::Add(Load(d, to + i, count - i), Load(d, from + i, count - i)), d, to + i, count - i);
  }
}

void AddToAny(const void* from, DType type, int64_t count, float* to) {
  type == DType::kBF16 ? AddToImpl(static_cast<const BFloat16*>(from), count, to)
                       : AddToImpl(static_cast<const float*>(from), count, to);
}

template <typename T>
void ScaleImpl(T* x, int64_t count, float factor) {
  const DF d;
  const int64_t lanes = hn::Lanes(d);
  const auto factor_v = hn::Set(d, factor);
  for (int64_t i = 0; i < count; i += lanes) {
    Store(hn::Mul(Load(d, x + i, count - i), factor_v), d, x + i, count - i);
  }
}

void ScaleAny(void* x, DType type, int64_t count, float factor) {
  type == DType::kBF16 ? ScaleImpl(static_cast<BFloat16*>(x), count, factor)
                       : ScaleImpl(static_cast<float*>(x), count, factor);
}

template <typename From, typename To>
void ConvertImpl(const void* from, void* to, int64_t count) {
  const DF d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t i = 0; i < count; i += lanes) {
    Store(Load(d, static_cast<const From*>(from) + i, count - i), d, static_cast<To*>(to) + i,
          count - i);
  }
}

void ConvertAny(const void* from, DType from_type, void* to, DType to_type, int64_t count) {
  if (from_type == DType::kBF16) {
    to_type == DType::kBF16 ? ConvertImpl<BFloat16, BFloat16>(from, to, count)
                            : ConvertImpl<BFloat16, float>(from, to, count);
  } else {
    to_type == DType::kBF16 ? ConvertImpl<float, BFloat16>(from, to, count)
                            : ConvertImpl<float, float>(from, to, count);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace {

HWY_EXPORT(ColumnSumsAny);
HWY_EXPORT(AddToAny);
HWY_EXPORT(ScaleAny);
HWY_EXPORT(ConvertAny);

void ColumnSums(const void* x, DType type, int64_t rows, int64_t columns, int64_t stride,
                float* sums) {
  HWY_DYNAMIC_DISPATCH(ColumnSumsAny)(x, type, rows, columns, stride, sums);
}

void AddTo(const void* from, DType type, int64_t count, float* to) {
  HWY_DYNAMIC_DISPATCH(AddToAny)(from, type, count, to);
}

void ScaleInPlace(void* x, DType type, int64_t count, float factor) {
  if (factor == 0.0f) {
    auto* bytes = static_cast<unsigned char*>(x);
    std::fill(bytes, bytes + count * SizeOf(type), 0);
    return;
  }
  HWY_DYNAMIC_DISPATCH(ScaleAny)(x, type, count, factor);
}

void Convert(const void* from, DType from_type, void* to, DType to_type, int64_t count) {
  HWY_DYNAMIC_DISPATCH(ConvertAny)(from, from_type, to, to_type, count);
}

}  // namespace millrace
#endif  // HWY_ONCE
