#include "engine/ops/cpu/amx_store.h"

#include <algorithm>

#include "engine/ops/cpu/amx_target.h"

namespace millrace {

#if MILLRACE_HAVE_AMX

namespace {

// Results of so many bytes are long out of the caches when they are read: they are stored to memory
// past them, which spares reading it first.
constexpr int64_t kPastCachesBytes = 1 << 20;

MILLRACE_AMX_INLINE __m512 FromBf16(__m256i v) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}

}  // namespace

MILLRACE_AMX void AmxStore::Begin(const Product& p, int64_t i, int64_t j, int64_t end,
                                  const float* blocks) {
  const auto size = static_cast<int64_t>(SizeOf(p.c_type));
  const int64_t at = (i * p.c_stride + j) * size;
  product_ = &p;
  row_ = blocks;
  c_ = static_cast<std::byte*>(p.c) + at;
  addend_ = p.addend == nullptr ? nullptr : static_cast<const std::byte*>(p.addend) + at;
  bias_ = p.bias == nullptr ? nullptr : static_cast<const BFloat16*>(p.bias) + j;
  past_caches_ = p.addend != p.c && p.m * p.n * size > kPastCachesBytes &&
                 reinterpret_cast<uintptr_t>(c_) % 64 == 0 && p.c_stride * size % 64 == 0;
  row_index_ = 0;
  rows_left_ = std::min(kAmxBlock, p.m - i);
  columns_ = end - j;
  pieces_ = (columns_ + kAmxBlock - 1) / kAmxBlock;
  piece_ = 0;
}

// Pieces [begin, end) of the row.
template <bool kF32, bool kAddend>
MILLRACE_AMX_INLINE void AmxStore::StorePieces(int64_t begin, int64_t end) const {
  for (int64_t piece = begin; piece < end; ++piece) {
    const float* from = row_ + piece * kAmxBlockFloats;
    const int64_t left = columns_ - piece * kAmxBlock;
    const uint32_t mask = left >= kAmxBlock ? ~0u : (1u << left) - 1;
    const auto mask0 = static_cast<__mmask16>(mask), mask1 = static_cast<__mmask16>(mask >> 16);
    __m512 v0 = _mm512_load_ps(from), v1 = _mm512_load_ps(from + 256);
    if (bias_ != nullptr) {
      const __m512i bias = _mm512_maskz_loadu_epi16(mask, bias_ + piece * kAmxBlock);
      v0 = _mm512_add_ps(v0, FromBf16(_mm512_castsi512_si256(bias)));
      v1 = _mm512_add_ps(v1, FromBf16(_mm512_extracti64x4_epi64(bias, 1)));
    }
    if constexpr (kF32) {
      const int64_t at = piece * kAmxBlock * 4;
      if constexpr (kAddend) {
        v0 = _mm512_add_ps(v0, _mm512_maskz_loadu_ps(mask0, addend_ + at));
        v1 = _mm512_add_ps(v1, _mm512_maskz_loadu_ps(mask1, addend_ + at + 64));
      }
      if (past_caches_ && left >= kAmxBlock) {
        _mm512_stream_ps(reinterpret_cast<float*>(c_ + at), v0);
        _mm512_stream_ps(reinterpret_cast<float*>(c_ + at + 64), v1);
      } else {
        _mm512_mask_storeu_ps(c_ + at, mask0, v0);
        _mm512_mask_storeu_ps(c_ + at + 64, mask1, v1);
      }
    } else {
      const int64_t at = piece * kAmxBlock * 2;
      if constexpr (kAddend) {
        const __m512i addend = _mm512_maskz_loadu_epi16(mask, addend_ + at);
        v0 = _mm512_add_ps(v0, FromBf16(_mm512_castsi512_si256(addend)));
        v1 = _mm512_add_ps(v1, FromBf16(_mm512_extracti64x4_epi64(addend, 1)));
      }
      const auto rounded = (__m512i)_mm512_cvtne2ps_pbh(v1, v0);
      if (past_caches_ && left >= kAmxBlock) {
        _mm512_stream_si512(reinterpret_cast<__m512i*>(c_ + at), rounded);
      } else {
        _mm512_mask_storeu_epi16(c_ + at, mask, rounded);
      }
    }
  }
}

MILLRACE_AMX void AmxStore::Step(int64_t count) {
  while (count > 0 && rows_left_ > 0) {
    const int64_t begin = piece_, end = std::min(begin + count, pieces_);
    if (product_->c_type == DType::kF32) {
      addend_ == nullptr ? StorePieces<true, false>(begin, end)
                         : StorePieces<true, true>(begin, end);
    } else {
      addend_ == nullptr ? StorePieces<false, false>(begin, end)
                         : StorePieces<false, true>(begin, end);
    }
    count -= end - begin;
    piece_ = end;
    if (end < pieces_) return;
    piece_ = 0;
    --rows_left_;
    // From the upper quarters to the lower ones.
    row_ += ++row_index_ == 16 ? 512 - 15 * 16 : 16;
    const int64_t stride = product_->c_stride * static_cast<int64_t>(SizeOf(product_->c_type));
    c_ += stride;
    if (addend_ != nullptr) addend_ += stride;
  }
}

MILLRACE_AMX void AmxStore::Flush() { _mm_sfence(); }

#else

void AmxStore::Flush() {}
void AmxStore::Begin(const Product&, int64_t, int64_t, int64_t, const float*) {}
void AmxStore::Step(int64_t) {}

#endif

}  // namespace millrace
