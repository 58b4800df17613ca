#include "engine/ops/cpu/amx_packing.h"

#include <algorithm>
#include <cstring>

#include "engine/ops/cpu/amx_target.h"

namespace millrace {

#if MILLRACE_HAVE_AMX

namespace {

// Four 128-bit pieces of memory, one a lane.
MILLRACE_AMX_INLINE __m512i Quarters(const std::byte* p, int64_t stride) {
  const auto at = [p, stride](int i) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + i * stride));
  };
  __m512i v = _mm512_castsi128_si512(at(0));
  v = _mm512_inserti32x4(v, at(1), 1);
  v = _mm512_inserti32x4(v, at(2), 2);
  return _mm512_inserti32x4(v, at(3), 3);
}

// A tile of 16 × 16 dwords, transposed. `stride` in bytes. The loads do half of the work: lane l of
// a register has four columns of row i + 4l.
MILLRACE_AMX_INLINE void Transpose(const std::byte* from, int64_t stride, __m512i* to) {
  for (int c = 0; c < 4; ++c) {
    __m512i r[4], t[4];
    for (int i = 0; i < 4; ++i) r[i] = Quarters(from + i * stride + 16 * c, 4 * stride);
    t[0] = _mm512_unpacklo_epi32(r[0], r[1]);
    t[1] = _mm512_unpackhi_epi32(r[0], r[1]);
    t[2] = _mm512_unpacklo_epi32(r[2], r[3]);
    t[3] = _mm512_unpackhi_epi32(r[2], r[3]);
    _mm512_store_si512(to + 4 * c, _mm512_unpacklo_epi64(t[0], t[2]));
    _mm512_store_si512(to + 4 * c + 1, _mm512_unpackhi_epi64(t[0], t[2]));
    _mm512_store_si512(to + 4 * c + 2, _mm512_unpacklo_epi64(t[1], t[3]));
    _mm512_store_si512(to + 4 * c + 3, _mm512_unpackhi_epi64(t[1], t[3]));
  }
}

// 32 rows of 32 elements, two rows at a time side by side, to two tiles of 16 columns each.
MILLRACE_AMX_INLINE void Interleave(const std::byte* from, int64_t stride, std::byte* to) {
  alignas(64) static constexpr uint16_t kLow[32] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,
                                                    37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
                                                    11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i low = _mm512_load_si512(kLow);
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  for (int i = 0; i < 16; ++i) {
    const __m512i even = _mm512_loadu_si512(from + 2 * i * stride);
    const __m512i odd = _mm512_loadu_si512(from + (2 * i + 1) * stride);
    _mm512_store_si512(to + i * 64, _mm512_permutex2var_epi16(even, low, odd));
    _mm512_store_si512(to + kAmxTileBytes + i * 64, _mm512_permutex2var_epi16(even, high, odd));
  }
}

// A whole pair. Not k_rows: 32 rows of 32 elements of k; k_rows: 32 of k by 32.
MILLRACE_AMX_INLINE void PackWholePair(const BFloat16* matrix, int64_t elements, bool is_b,
                                       bool k_rows, std::byte* to) {
  const auto* from = reinterpret_cast<const std::byte*>(matrix);
  const int64_t stride = elements * static_cast<int64_t>(sizeof(BFloat16));
  if (is_b && k_rows) {
    Interleave(from, stride, to);
  } else if (is_b) {
    Transpose(from, stride, reinterpret_cast<__m512i*>(to));
    Transpose(from + 16 * stride, stride, reinterpret_cast<__m512i*>(to + kAmxTileBytes));
  } else if (k_rows) {
    alignas(64) std::byte pairs[kAmxPairBytes];
    Interleave(from, stride, pairs);
    Transpose(pairs, 64, reinterpret_cast<__m512i*>(to));
    Transpose(pairs + kAmxTileBytes, 64, reinterpret_cast<__m512i*>(to + kAmxTileBytes));
  } else {
    for (int i = 0; i < 32; ++i) {
      _mm512_store_si512(to + i * 64, _mm512_loadu_si512(from + i * stride));
    }
  }
}

}  // namespace

MILLRACE_AMX void PackAmxPair(const AmxPanel& panel, int64_t pair, std::byte* to) {
  const int64_t k = pair * kAmxTileDepth;
  const int64_t rows = panel.end - panel.begin, depth = std::min(panel.k - k, kAmxTileDepth);
  const int64_t stride = panel.stride;
  const BFloat16* from = panel.from + (panel.k_rows ? k * stride + panel.begin  //
                                                    : panel.begin * stride + k);
  if (rows == kAmxBlock && depth == kAmxTileDepth) {
    PackWholePair(from, stride, panel.is_b, panel.k_rows, to);
    return;
  }
  alignas(64) BFloat16 whole[kAmxBlock * kAmxTileDepth] = {};
  const int64_t lines = panel.k_rows ? depth : rows, columns = panel.k_rows ? rows : depth;
  for (int64_t i = 0; i < lines; ++i) {
    std::memcpy(whole + i * 32, from + i * stride, static_cast<size_t>(columns) * sizeof(BFloat16));
  }
  PackWholePair(whole, 32, panel.is_b, panel.k_rows, to);
}

#else

void PackAmxPair(const AmxPanel&, int64_t, std::byte*) {}

#endif

}  // namespace millrace
