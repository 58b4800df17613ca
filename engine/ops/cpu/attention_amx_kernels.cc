#include "engine/ops/cpu/attention_amx_kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/ops/cpu/amx_target.h"

namespace millrace {

#if MILLRACE_HAVE_AMX

namespace {

constexpr int64_t kRows = 32;
constexpr float kLog2E = 1.44269504f;

// 2^x; relative error under 3e-7. Cephes' exp2f polynomial on |r| <= 1/2.
MILLRACE_AMX_INLINE __m512 Exp2(__m512 x) {
  const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 r = _mm512_sub_ps(x, n);
  __m512 p = _mm512_set1_ps(1.535336188319500e-4f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.339887440266574e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(9.618437357674640e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.550332471162809e-2f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(2.402264791363012e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(6.931472028550421e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, n);
}

// Lanes i with i < count.
MILLRACE_AMX_INLINE __mmask16 FirstLanes(int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffff : count <= 0 ? 0 : (1u << count) - 1);
}

// Lanes i with begin <= i < end.
MILLRACE_AMX_INLINE __mmask16 LanesIn(int64_t begin, int64_t end) {
  return static_cast<__mmask16>(FirstLanes(end) & ~FirstLanes(begin));
}

// The largest of scores [begin, end).
MILLRACE_AMX_INLINE float Largest(const float* scores, int64_t begin, int64_t end) {
  const __m512 lowest = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  __m512 a = lowest, b = lowest;
  int64_t j = begin;
  for (; j + 32 <= end; j += 32) {
    a = _mm512_max_ps(a, _mm512_loadu_ps(scores + j));
    b = _mm512_max_ps(b, _mm512_loadu_ps(scores + j + 16));
  }
  for (; j < end; j += 16) {
    const __mmask16 mask = FirstLanes(end - j);
    a = _mm512_mask_max_ps(a, mask, a, _mm512_maskz_loadu_ps(mask, scores + j));
  }
  return _mm512_reduce_max_ps(_mm512_max_ps(a, b));
}

// Of 32 scores, e^(s − shift) for those of [begin, end), 0 for others, to p; adds them to sums.
MILLRACE_AMX_INLINE void ExpOfSome(const float* scores, int64_t begin, int64_t end, __m512 scale,
                                   __m512 shift, BFloat16* p, __m512& sums) {
  const __mmask16 mask0 = LanesIn(begin, end), mask1 = LanesIn(begin - 16, end - 16);
  const __m512 x0 = _mm512_maskz_loadu_ps(mask0, scores);
  const __m512 x1 = _mm512_maskz_loadu_ps(mask1, scores + 16);
  const __m512 e0 = _mm512_maskz_mov_ps(mask0, Exp2(_mm512_fmsub_ps(x0, scale, shift)));
  const __m512 e1 = _mm512_maskz_mov_ps(mask1, Exp2(_mm512_fmsub_ps(x1, scale, shift)));
  sums = _mm512_add_ps(sums, _mm512_add_ps(e0, e1));
  _mm512_storeu_si512(p, (__m512i)_mm512_cvtne2ps_pbh(e1, e0));
}

}  // namespace

MILLRACE_AMX void SoftmaxStrip(const QueryStrip& s, bool first, BFloat16* probabilities,
                               int64_t probability_stride, float* row_max, float* row_sum,
                               float* output, int64_t head_dim) {
  for (int64_t row = 0; row < kRows; ++row) {
    BFloat16* p = probabilities + row * probability_stride;
    const int64_t past = s.first_visible + row + 1;
    const int64_t end = row < s.rows ? std::clamp<int64_t>(past, 0, s.columns) : 0;
    const int64_t begin = s.window > 0 ? std::max<int64_t>(0, past - s.window) : 0;
    if (begin >= end) {
      std::fill(p, p + s.columns, BFloat16());
      continue;
    }
    const float* scores = s.scores + row * s.stride;
    float largest = Largest(scores, begin, end) * s.scale;
    if (!first) largest = std::max(largest, row_max[row]);
    const __m512 scale = _mm512_set1_ps(s.scale * kLog2E);
    const __m512 shift = _mm512_set1_ps(largest * kLog2E);
    __m512 sums = _mm512_setzero_ps();
    int64_t j = begin / 32 * 32;
    std::fill(p, p + j, BFloat16());
    if (j < begin) {
      ExpOfSome(scores + j, begin - j, end - j, scale, shift, p + j, sums);
      j += 32;
    }
    for (; j + 32 <= end; j += 32) {
      const __m512 e0 = Exp2(_mm512_fmsub_ps(_mm512_loadu_ps(scores + j), scale, shift));
      const __m512 e1 = Exp2(_mm512_fmsub_ps(_mm512_loadu_ps(scores + j + 16), scale, shift));
      sums = _mm512_add_ps(sums, _mm512_add_ps(e0, e1));
      _mm512_storeu_si512(p + j, (__m512i)_mm512_cvtne2ps_pbh(e1, e0));
    }
    for (; j < s.columns; j += 32) {
      ExpOfSome(scores + j, 0, end - j, scale, shift, p + j, sums);
    }
    float sum = _mm512_reduce_add_ps(sums);
    if (!first) {
      const float shrink = std::exp(row_max[row] - largest);
      sum += row_sum[row] * shrink;
      if (shrink != 1.0f) {
        float* o = output + row * head_dim;
        for (int64_t i = 0; i < head_dim; i += 16) {
          _mm512_storeu_ps(o + i, _mm512_mul_ps(_mm512_loadu_ps(o + i), _mm512_set1_ps(shrink)));
        }
      }
    }
    row_max[row] = largest;
    row_sum[row] = sum;
  }
}

MILLRACE_AMX void SoftmaxBackwardStrip(const KeyStrip& s, BFloat16* probabilities,
                                       BFloat16* dscores) {
  const bool capped = s.softcap > 0;
  const __m512 scale = _mm512_set1_ps(s.scale);
  const __m512 scale2 = _mm512_set1_ps((capped ? 1.0f : s.scale) * kLog2E);
  const __m512 inverse_cap = _mm512_set1_ps(capped ? 1.0f / s.softcap : 0.0f);
  const __m512 one = _mm512_set1_ps(1.0f);
  for (int64_t j = 0; j < s.columns; j += 32) {
    const __m512 shift0 = _mm512_mul_ps(_mm512_loadu_ps(s.log_sum_exp + j), _mm512_set1_ps(kLog2E));
    const __m512 shift1 =
        _mm512_mul_ps(_mm512_loadu_ps(s.log_sum_exp + j + 16), _mm512_set1_ps(kLog2E));
    const __m512 delta0 = _mm512_loadu_ps(s.delta + j), delta1 = _mm512_loadu_ps(s.delta + j + 16);
    for (int64_t row = 0; row < kRows; ++row) {
      const int64_t begin = s.first_visible + row - j;
      const int64_t end = s.window > 0 ? begin + s.window : s.columns;
      const __mmask16 mask0 = LanesIn(begin, end), mask1 = LanesIn(begin - 16, end - 16);
      const float* scores = s.scores + row * s.stride + j;
      const float* dp = s.dprobabilities + row * s.stride + j;
      const __m512 s0 = _mm512_loadu_ps(scores), s1 = _mm512_loadu_ps(scores + 16);
      const __m512 p0 = _mm512_maskz_mov_ps(mask0, Exp2(_mm512_fmsub_ps(s0, scale2, shift0)));
      const __m512 p1 = _mm512_maskz_mov_ps(mask1, Exp2(_mm512_fmsub_ps(s1, scale2, shift1)));
      __m512 ds0 = _mm512_maskz_mul_ps(mask0, _mm512_mul_ps(p0, scale),
                                       _mm512_sub_ps(_mm512_loadu_ps(dp), delta0));
      __m512 ds1 = _mm512_maskz_mul_ps(mask1, _mm512_mul_ps(p1, scale),
                                       _mm512_sub_ps(_mm512_loadu_ps(dp + 16), delta1));
      if (capped) {
        const __m512 r0 = _mm512_mul_ps(s0, inverse_cap), r1 = _mm512_mul_ps(s1, inverse_cap);
        ds0 = _mm512_maskz_mul_ps(mask0, ds0, _mm512_fnmadd_ps(r0, r0, one));
        ds1 = _mm512_maskz_mul_ps(mask1, ds1, _mm512_fnmadd_ps(r1, r1, one));
      }
      _mm512_storeu_si512(probabilities + row * s.columns + j,
                          (__m512i)_mm512_cvtne2ps_pbh(p1, p0));
      _mm512_storeu_si512(dscores + row * s.columns + j, (__m512i)_mm512_cvtne2ps_pbh(ds1, ds0));
    }
  }
}

#else

void SoftmaxStrip(const QueryStrip&, bool, BFloat16*, int64_t, float*, float*, float*, int64_t) {}
void SoftmaxBackwardStrip(const KeyStrip&, BFloat16*, BFloat16*) {}

#endif

}  // namespace millrace
