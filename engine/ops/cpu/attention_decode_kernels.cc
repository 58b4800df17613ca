#include "engine/ops/cpu/attention_decode_kernels.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/cpu/attention_decode_kernels.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, as Highway wants it.
#include "engine/ops/vector-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {

// Rows so far ahead are fetched: heads are strided, for which hardware fetches too little.
constexpr int64_t kAhead = 16;

template <typename T>
HWY_INLINE void FetchRow(const T* row, int64_t columns) {
  for (int64_t i = 0; i < columns; i += 64 / sizeof(T)) hwy::Prefetch(row + i);
}

// to[i] = the sum of vector i's lanes.
HWY_INLINE void StoreSums(DF d, VF v0, VF v1, VF v2, VF v3, float* to) {
#if HWY_TARGET == HWY_SCALAR
  to[0] = Sum(d, v0);
  to[1] = Sum(d, v1);
  to[2] = Sum(d, v2);
  to[3] = Sum(d, v3);
#else
  // Of every 128 bits: v0[0] + v0[2], v1[0] + v1[2], v0[1] + v0[3], v1[1] + v1[3], and so for v2,
  // v3.
  const auto v01 = hn::Add(hn::InterleaveLower(d, v0, v1), hn::InterleaveUpper(d, v0, v1));
  const auto v23 = hn::Add(hn::InterleaveLower(d, v2, v3), hn::InterleaveUpper(d, v2, v3));
  const hn::Repartition<uint64_t, DF> pairs;
  const auto low = hn::InterleaveLower(pairs, hn::BitCast(pairs, v01), hn::BitCast(pairs, v23));
  const auto high = hn::InterleaveUpper(pairs, hn::BitCast(pairs, v01), hn::BitCast(pairs, v23));
  HWY_ALIGN float blocks[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(hn::Add(hn::BitCast(d, low), hn::BitCast(d, high)), d, blocks);
  const hn::CappedTag<float, 4> four;
  auto sums = hn::Load(four, blocks);
  for (size_t i = 4; i < hn::Lanes(d); i += 4) sums = hn::Add(sums, hn::Load(four, blocks + i));
  hn::StoreU(sums, four, to);
#endif
}

// scores of q0 and q1 with the keys k0 to k3.
template <typename T>
HWY_INLINE void ScoreBlock(const float* q0, const float* q1, const T* k0, const T* k1, const T* k2,
                           const T* k3, int64_t head_dim, float* scores0, float* scores1) {
  const DF d;
  const int64_t lanes = hn::Lanes(d);
  auto s00 = hn::Zero(d), s01 = s00, s02 = s00, s03 = s00;
  auto s10 = s00, s11 = s00, s12 = s00, s13 = s00;
  for (int64_t i = 0; i < head_dim; i += lanes) {
    const size_t left = head_dim - i;
    const auto a = Load(d, q0 + i, left), b = Load(d, q1 + i, left);
    auto k = Load(d, k0 + i, left);
    s00 = hn::MulAdd(a, k, s00);
    s10 = hn::MulAdd(b, k, s10);
    k = Load(d, k1 + i, left);
    s01 = hn::MulAdd(a, k, s01);
    s11 = hn::MulAdd(b, k, s11);
    k = Load(d, k2 + i, left);
    s02 = hn::MulAdd(a, k, s02);
    s12 = hn::MulAdd(b, k, s12);
    k = Load(d, k3 + i, left);
    s03 = hn::MulAdd(a, k, s03);
    s13 = hn::MulAdd(b, k, s13);
  }
  StoreSums(d, s00, s01, s02, s03, scores0);
  if (q1 != q0) StoreSums(d, s10, s11, s12, s13, scores1);
}

template <typename T>
void ScoreImpl(const float* q, int64_t queries, const CachedRows& keys, float* scores,
               int64_t score_stride) {
  const T* const rows = static_cast<const T*>(keys.data);
  const int64_t d = keys.head_dim;
  for (int64_t key = 0; key < keys.count; key += 4) {
    // Beyond the last key, that one again.
    const auto row = [&](int64_t i) {
      return rows + std::min(key + i, keys.count - 1) * keys.stride;
    };
    const int64_t count = std::min<int64_t>(4, keys.count - key);
    for (int64_t i = 0; i < 4; ++i) FetchRow(rows + (key + kAhead + i) * keys.stride, d);
    for (int64_t query = 0; query < queries; query += 2) {
      const int64_t other = std::min(query + 1, queries - 1);
      float s0[4], s1[4];
      ScoreBlock(q + query * d, q + other * d, row(0), row(1), row(2), row(3), d, s0, s1);
      std::copy(s0, s0 + count, scores + query * score_stride + key);
      if (other > query) std::copy(s1, s1 + count, scores + other * score_stride + key);
    }
  }
}

// Columns [i, i + 4 vectors) of o0 and o1, or as many as are left.
template <typename T>
HWY_INLINE void AddBlock(const float* p0, const float* p1, const T* values, int64_t stride,
                         int64_t keys, int64_t columns, float* o0, float* o1) {
  const DF d;
  const int64_t lanes = hn::Lanes(d);
  if (columns >= 4 * lanes) {
    auto a0 = hn::LoadU(d, o0), a1 = hn::LoadU(d, o0 + lanes);
    auto a2 = hn::LoadU(d, o0 + 2 * lanes), a3 = hn::LoadU(d, o0 + 3 * lanes);
    auto b0 = hn::LoadU(d, o1), b1 = hn::LoadU(d, o1 + lanes);
    auto b2 = hn::LoadU(d, o1 + 2 * lanes), b3 = hn::LoadU(d, o1 + 3 * lanes);
    for (int64_t key = 0; key < keys; ++key, values += stride) {
      const auto p = hn::Set(d, p0[key]), r = hn::Set(d, p1[key]);
      auto v = LoadFull(d, values);
      a0 = hn::MulAdd(p, v, a0);
      b0 = hn::MulAdd(r, v, b0);
      v = LoadFull(d, values + lanes);
      a1 = hn::MulAdd(p, v, a1);
      b1 = hn::MulAdd(r, v, b1);
      v = LoadFull(d, values + 2 * lanes);
      a2 = hn::MulAdd(p, v, a2);
      b2 = hn::MulAdd(r, v, b2);
      v = LoadFull(d, values + 3 * lanes);
      a3 = hn::MulAdd(p, v, a3);
      b3 = hn::MulAdd(r, v, b3);
    }
    hn::StoreU(b0, d, o1);
    hn::StoreU(b1, d, o1 + lanes);
    hn::StoreU(b2, d, o1 + 2 * lanes);
    hn::StoreU(b3, d, o1 + 3 * lanes);
    // Last: o1 may be o0.
    hn::StoreU(a0, d, o0);
    hn::StoreU(a1, d, o0 + lanes);
    hn::StoreU(a2, d, o0 + 2 * lanes);
    hn::StoreU(a3, d, o0 + 3 * lanes);
    return;
  }
  for (int64_t i = 0; i < columns; i += lanes) {
    const size_t left = columns - i;
    auto a = Load(d, o0 + i, left), b = Load(d, o1 + i, left);
    const T* row = values + i;
    for (int64_t key = 0; key < keys; ++key, row += stride) {
      const auto v = Load(d, row, left);
      a = hn::MulAdd(hn::Set(d, p0[key]), v, a);
      b = hn::MulAdd(hn::Set(d, p1[key]), v, b);
    }
    Store(b, d, o1 + i, left);
    Store(a, d, o0 + i, left);
  }
}

template <typename T>
void AddImpl(const float* probabilities, int64_t probability_stride, int64_t queries,
             const CachedRows& values, float* o) {
  // Values that stay in the first-level cache for all queries.
  constexpr int64_t kBlock = 64;
  const int64_t columns = 4 * static_cast<int64_t>(hn::Lanes(DF())), d = values.head_dim;
  for (int64_t key = 0; key < values.count; key += kBlock) {
    const int64_t keys = std::min(kBlock, values.count - key);
    const T* const rows = static_cast<const T*>(values.data) + key * values.stride;
    for (int64_t i = 0; i < keys; ++i) FetchRow(rows + (keys + i) * values.stride, d);
    for (int64_t column = 0; column < d; column += columns) {
      for (int64_t query = 0; query < queries; query += 2) {
        const int64_t other = std::min(query + 1, queries - 1);
        const float* p = probabilities + key;
        AddBlock(p + query * probability_stride, p + other * probability_stride, rows + column,
                 values.stride, keys, std::min(columns, d - column), o + query * d + column,
                 o + other * d + column);
      }
    }
  }
}

void ScoreAny(const float* q, int64_t queries, const CachedRows& keys, float* scores,
              int64_t score_stride) {
  keys.type == DType::kBF16 ? ScoreImpl<BFloat16>(q, queries, keys, scores, score_stride)
                            : ScoreImpl<float>(q, queries, keys, scores, score_stride);
}

void AddAny(const float* probabilities, int64_t probability_stride, int64_t queries,
            const CachedRows& values, float* o) {
  values.type == DType::kBF16
      ? AddImpl<BFloat16>(probabilities, probability_stride, queries, values, o)
      : AddImpl<float>(probabilities, probability_stride, queries, values, o);
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace {

HWY_EXPORT(ScoreAny);
HWY_EXPORT(AddAny);

void ScoreCachedKeys(const float* q, int64_t queries, const CachedRows& keys, float* scores,
                     int64_t score_stride) {
  HWY_DYNAMIC_DISPATCH(ScoreAny)(q, queries, keys, scores, score_stride);
}

void AddCachedValues(const float* probabilities, int64_t probability_stride, int64_t queries,
                     const CachedRows& values, float* o) {
  HWY_DYNAMIC_DISPATCH(AddAny)(probabilities, probability_stride, queries, values, o);
}

}  // namespace millrace
#endif  // HWY_ONCE
