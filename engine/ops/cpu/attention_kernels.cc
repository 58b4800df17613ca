#include "engine/ops/cpu/attention_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/cpu/attention_kernels.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, as Highway wants it.
#include "engine/ops/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {

// The columns [begin, end) that row `row` sees; 0, 0 for none.
struct Columns {
  int64_t begin = 0, end = 0;
};

inline Columns Visible(const ScoreTile& tile, int64_t row) {
  if (row >= tile.rows) return {};
  const int64_t past = tile.first_visible + row + 1;
  const int64_t end = std::clamp<int64_t>(past, 0, tile.columns);
  const int64_t begin = tile.window > 0 ? std::max<int64_t>(0, past - tile.window) : 0;
  return begin < end ? Columns{begin, end} : Columns{};
}

inline float ScaleOf(const ScoreTile& tile) { return tile.softcap > 0 ? 1.0f : tile.scale; }

void CapScoresAny(float* scores, int64_t stride, int64_t rows, int64_t columns, float scale,
                  float cap) {
  const DF d;
  const int64_t lanes = hn::Lanes(d);
  const auto inner = hn::Set(d, scale / cap), outer = hn::Set(d, cap);
  for (int64_t row = 0; row < rows; ++row) {
    float* s = scores + row * stride;
    for (int64_t j = 0; j < columns; j += lanes) {
      const size_t left = columns - j;
      Store(hn::Mul(outer, Tanh(d, hn::Mul(Load(d, s + j, left), inner))), d, s + j, left);
    }
  }
}

template <typename T>
void SoftmaxImpl(const ScoreTile& tile, bool first, T* probabilities, float* row_max,
                 float* row_sum, float* output, int64_t head_dim) {
  const DF d;
  const int64_t lanes = hn::Lanes(d);
  const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (int64_t row = 0; row < tile.padded_rows; ++row) {
    T* p = probabilities + row * tile.columns;
    const auto [begin, end] = Visible(tile, row);
    if (end == 0) {
      std::fill(p, p + tile.columns, T());
      if (first && row < tile.rows) {
        row_max[row] = -std::numeric_limits<float>::infinity();
        row_sum[row] = 0.0f;
      }
      continue;
    }
    const float* s = tile.scores + row * tile.columns;
    auto max_v = lowest;
    int64_t j = begin;
    for (; j + lanes <= end; j += lanes) max_v = hn::Max(max_v, hn::LoadU(d, s + j));
    float largest = Max(d, max_v);
    for (; j < end; ++j) largest = std::max(largest, s[j]);
    largest *= ScaleOf(tile);
    if (!first) largest = std::max(largest, row_max[row]);
    const auto scale = hn::Set(d, ScaleOf(tile)), shift = hn::Set(d, largest);
    auto sum_v = hn::Zero(d);
    std::fill(p, p + begin, T());
    for (j = begin; j + lanes <= end; j += lanes) {
      const auto e = ExpOfNegative(d, hn::MulSub(hn::LoadU(d, s + j), scale, shift));
      sum_v = hn::Add(sum_v, e);
      StoreFull(e, d, p + j);
    }
    if (j < end) {
      const int64_t left = end - j;
      const auto e = hn::IfThenElseZero(
          hn::FirstN(d, left), ExpOfNegative(d, hn::MulSub(Load(d, s + j, left), scale, shift)));
      sum_v = hn::Add(sum_v, e);
      Store(e, d, p + j, left);
    }
    std::fill(p + end, p + tile.columns, T());
    float sum = Sum(d, sum_v);
    if (!first) {
      const float shrink = std::exp(row_max[row] - largest);
      sum += row_sum[row] * shrink;
      if (shrink != 1.0f) {
        float* o = output + row * head_dim;
        const auto shrink_v = hn::Set(d, shrink);
        for (int64_t i = 0; i < head_dim; i += lanes) {
          Store(hn::Mul(Load(d, o + i, head_dim - i), shrink_v), d, o + i, head_dim - i);
        }
      }
    }
    row_max[row] = largest;
    row_sum[row] = sum;
  }
}

template <typename T>
void FinishImpl(const float* o, const float* row_max, const float* row_sum, int64_t rows,
                int64_t head_dim, T* output, int64_t output_stride, float* log_sum_exp) {
  const DF d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t row = 0; row < rows; ++row) {
    const auto factor = hn::Set(d, 1.0f / row_sum[row]);
    for (int64_t i = 0; i < head_dim; i += lanes) {
      const size_t left = head_dim - i;
      Store(hn::Mul(Load(d, o + row * head_dim + i, left), factor), d,
            output + row * output_stride + i, left);
    }
    if (log_sum_exp != nullptr) log_sum_exp[row] = row_max[row] + std::log(row_sum[row]);
  }
}

template <typename T>
void BackwardImpl(const ScoreTile& tile, const float* dprobabilities, const float* log_sum_exp,
                  const float* deltas, T* probabilities, T* dscores) {
  const DF d;
  const int64_t lanes = hn::Lanes(d);
  const auto scale = hn::Set(d, tile.scale), score_scale = hn::Set(d, ScaleOf(tile));
  const auto one = hn::Set(d, 1.0f);
  const auto inverse_cap = hn::Set(d, tile.softcap > 0 ? 1 / tile.softcap : 0.0f);
  for (int64_t row = 0; row < tile.padded_rows; ++row) {
    const auto [begin, end] = Visible(tile, row);
    const float* s = tile.scores + row * tile.columns;
    const float* dp = dprobabilities + row * tile.columns;
    T* p = probabilities + row * tile.columns;
    T* ds = dscores + row * tile.columns;
    std::fill(p, p + begin, T());
    std::fill(ds, ds + begin, T());
    if (begin < end) {
      const auto shift = hn::Set(d, log_sum_exp[row]), delta = hn::Set(d, deltas[row]);
      for (int64_t j = begin; j < end; j += lanes) {
        const size_t left = end - j;
        const auto score = Load(d, s + j, left);
        const auto e = ExpOfNegative(d, hn::MulSub(score, score_scale, shift));
        Store(e, d, p + j, left);
        auto slope = hn::Mul(hn::Mul(e, scale), hn::Sub(Load(d, dp + j, left), delta));
        if (tile.softcap > 0) {
          const auto ratio = hn::Mul(score, inverse_cap);
          slope = hn::Mul(slope, hn::NegMulAdd(ratio, ratio, one));
        }
        Store(slope, d, ds + j, left);
      }
    }
    std::fill(p + end, p + tile.columns, T());
    std::fill(ds + end, ds + tile.columns, T());
  }
}

template <typename T>
void RowDotsImpl(const T* a, const T* b, int64_t stride, int64_t rows, int64_t columns,
                 float* dots) {
  const DF d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t row = 0; row < rows; ++row) {
    auto sum = hn::Zero(d);
    for (int64_t j = 0; j < columns; j += lanes) {
      const size_t left = columns - j;
      sum =
          hn::MulAdd(Load(d, a + row * stride + j, left), Load(d, b + row * stride + j, left), sum);
    }
    dots[row] = Sum(d, sum);
  }
}

void SoftmaxAny(const ScoreTile& tile, bool first, void* probabilities, float* row_max,
                float* row_sum, float* output, int64_t head_dim) {
  tile.type == DType::kBF16 ? SoftmaxImpl(tile, first, static_cast<BFloat16*>(probabilities),
                                          row_max, row_sum, output, head_dim)
                            : SoftmaxImpl(tile, first, static_cast<float*>(probabilities), row_max,
                                          row_sum, output, head_dim);
}

void FinishAny(const float* o, const float* row_max, const float* row_sum, int64_t rows,
               int64_t head_dim, DType type, void* output, int64_t output_stride,
               float* log_sum_exp) {
  type == DType::kBF16 ? FinishImpl(o, row_max, row_sum, rows, head_dim,
                                    static_cast<BFloat16*>(output), output_stride, log_sum_exp)
                       : FinishImpl(o, row_max, row_sum, rows, head_dim,
                                    static_cast<float*>(output), output_stride, log_sum_exp);
}

void BackwardAny(const ScoreTile& tile, const float* dprobabilities, const float* log_sum_exp,
                 const float* deltas, void* probabilities, void* dscores) {
  tile.type == DType::kBF16
      ? BackwardImpl(tile, dprobabilities, log_sum_exp, deltas,
                     static_cast<BFloat16*>(probabilities), static_cast<BFloat16*>(dscores))
      : BackwardImpl(tile, dprobabilities, log_sum_exp, deltas, static_cast<float*>(probabilities),
                     static_cast<float*>(dscores));
}

void RowDotsAny(const void* a, const void* b, int64_t stride, int64_t rows, int64_t columns,
                DType type, float* dots) {
  type == DType::kBF16 ? RowDotsImpl(static_cast<const BFloat16*>(a),
                                     static_cast<const BFloat16*>(b), stride, rows, columns, dots)
                       : RowDotsImpl(static_cast<const float*>(a), static_cast<const float*>(b),
                                     stride, rows, columns, dots);
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace {

HWY_EXPORT(CapScoresAny);
HWY_EXPORT(SoftmaxAny);
HWY_EXPORT(FinishAny);
HWY_EXPORT(BackwardAny);
HWY_EXPORT(RowDotsAny);

void CapScores(float* scores, int64_t stride, int64_t rows, int64_t columns, float scale,
               float cap) {
  HWY_DYNAMIC_DISPATCH(CapScoresAny)(scores, stride, rows, columns, scale, cap);
}

void SoftmaxTile(const ScoreTile& tile, bool first, void* probabilities, float* row_max,
                 float* row_sum, float* output, int64_t head_dim) {
  HWY_DYNAMIC_DISPATCH(SoftmaxAny)
  (tile, first, probabilities, row_max, row_sum, output, head_dim);
}

void FinishRows(const float* o, const float* row_max, const float* row_sum, int64_t rows,
                int64_t head_dim, DType type, void* output, int64_t output_stride,
                float* log_sum_exp) {
  HWY_DYNAMIC_DISPATCH(FinishAny)
  (o, row_max, row_sum, rows, head_dim, type, output, output_stride, log_sum_exp);
}

void SoftmaxBackwardTile(const ScoreTile& tile, const float* dprobabilities,
                         const float* log_sum_exp, const float* d, void* probabilities,
                         void* dscores) {
  HWY_DYNAMIC_DISPATCH(BackwardAny)
  (tile, dprobabilities, log_sum_exp, d, probabilities, dscores);
}

void RowDots(const void* a, const void* b, int64_t stride, int64_t rows, int64_t columns,
             DType type, float* d) {
  HWY_DYNAMIC_DISPATCH(RowDotsAny)(a, b, stride, rows, columns, type, d);
}

void PackRows(const void* from, int64_t stride, int64_t rows, int64_t padded_rows, int64_t columns,
              DType type, void* to) {
  const size_t row_bytes = columns * SizeOf(type);
  const auto* source = static_cast<const std::byte*>(from);
  auto* target = static_cast<std::byte*>(to);
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(target + row * row_bytes, source + row * stride * SizeOf(type), row_bytes);
  }
  std::memset(target + rows * row_bytes, 0, (padded_rows - rows) * row_bytes);
}

}  // namespace millrace
#endif  // HWY_ONCE
