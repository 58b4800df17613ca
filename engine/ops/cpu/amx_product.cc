#include "engine/ops/cpu/amx_product.h"

#include <algorithm>
#include <cstring>
#include <utility>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace millrace {
namespace {

constexpr int64_t kTileBytes = 1024;
constexpr int64_t kTileDepth = 32;  // elements of k in a tile
constexpr int64_t kBlock = 32;      // rows and columns of results in registers

// Tiles of k that are multiplied at a time, and resident blocks that these are multiplied with
// before the next: a panel's part (16 KiB) and the blocks' partial sums (16 KiB) stay in the
// first-level cache while the resident operand streams from the second level.
constexpr int64_t kSteps = 8;
constexpr int64_t kGroup = 4;
// Packed rows of one operand that stay in the second-level cache.
constexpr int64_t kResidentBytes = 1200 << 10;

constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

constexpr int64_t PanelBytes(int64_t k) { return RoundUp(k, kTileDepth) * kBlock * 2; }

// Rows of an operand with `rows` that are resident together: whole blocks, about equal shares.
int64_t ResidentRows(int64_t rows, int64_t k) {
  const int64_t blocks = (rows + kBlock - 1) / kBlock;
  const int64_t fitting = std::max<int64_t>(1, kResidentBytes / PanelBytes(k));
  const int64_t shares = (blocks + fitting - 1) / fitting;
  return (blocks + shares - 1) / shares * kBlock;
}

// Scratch memory of a product: the resident operand, two panels of the streamed one, and partial
// sums.
int64_t ScratchBytes(int64_t resident_rows, int64_t k) {
  return (resident_rows / kBlock + 2) * PanelBytes(k) + kGroup * kBlock * kBlock * 4;
}

// A relative cost of packing an element: copied, interleaved, or either and transposed.
double PackingCost(bool interleaved, bool transposed) {
  return (interleaved ? 1.6 : 1.0) + (transposed ? 2.5 : 0.0);
}

// Keeps rows of op(a) resident and streams op(b), or the other way around.
struct Plan {
  bool a_resident;
  int64_t resident_rows;
};

Plan PlanOf(const Product& p) {
  const double a_cost = PackingCost(p.a_transposed, p.a_transposed) * static_cast<double>(p.m);
  const double b_cost = PackingCost(!p.b_transposed, p.b_transposed) * static_cast<double>(p.n);
  const int64_t a_rows = ResidentRows(p.m, p.k), b_rows = ResidentRows(p.n, p.k);
  const auto passes = [](int64_t count, int64_t rows) {
    return static_cast<double>((count + rows - 1) / rows);
  };
  const bool a_resident =
      a_cost + b_cost * passes(p.m, a_rows) <= b_cost + a_cost * passes(p.n, b_rows);
  return {a_resident, a_resident ? a_rows : b_rows};
}

}  // namespace

bool AmxSuits(const Product& p) {
  // Below, packing costs more than it saves; beyond, too few rows are resident.
  constexpr int64_t kFewestRows = 32, kFewestProducts = 8 << 20, kMostDepth = 4096;
  return p.type == DType::kBF16 && std::min(p.m, p.n) >= kFewestRows && p.k <= kMostDepth &&
         p.m * p.n * p.k >= kFewestProducts;
}

size_t AmxScratchBytes(const Product& p) {
  return static_cast<size_t>(ScratchBytes(PlanOf(p).resident_rows, p.k));
}

#if defined(__x86_64__) && defined(__linux__)

// GCC takes what the intrinsics leave undefined on purpose for a mistake.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"

#define MILLRACE_AMX \
  __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

namespace {

bool DetectAmx() {
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24, kAvx512Bw = 1u << 30;
  if ((d & kAmxBf16) == 0 || (d & kAmxTile) == 0 || (b & kAvx512Bw) == 0) return false;
  if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || (a & (1u << 5)) == 0)
    return false;  // AVX512_BF16
  // ARCH_REQ_XCOMP_PERM for the tiles' state, of the whole process.
  return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
}

// 16 × 16 dwords, in place.
MILLRACE_AMX inline __attribute__((always_inline)) void Transpose(__m512i (&r)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // Now r[4g + c] holds, in 128-bit lane l, column 4l + c of rows 4g to 4g + 3.
  for (int c = 0; c < 4; ++c) {
    t[c] = _mm512_shuffle_i32x4(r[c], r[c + 4], 0x88);
    t[c + 4] = _mm512_shuffle_i32x4(r[c], r[c + 4], 0xdd);
    t[c + 8] = _mm512_shuffle_i32x4(r[c + 8], r[c + 12], 0x88);
    t[c + 12] = _mm512_shuffle_i32x4(r[c + 8], r[c + 12], 0xdd);
  }
  for (int c = 0; c < 4; ++c) {
    r[c] = _mm512_shuffle_i32x4(t[c], t[c + 8], 0x88);
    r[c + 8] = _mm512_shuffle_i32x4(t[c], t[c + 8], 0xdd);
    r[c + 4] = _mm512_shuffle_i32x4(t[c + 4], t[c + 12], 0x88);
    r[c + 12] = _mm512_shuffle_i32x4(t[c + 4], t[c + 12], 0xdd);
  }
}

// One whole tile from a matrix in memory. Not kInterleaved: 16 rows of 32 elements. kInterleaved:
// 32 rows in pairs, of 16 elements, the two of a pair side by side.
template <bool kInterleaved, bool kTransposed>
MILLRACE_AMX inline __attribute__((always_inline)) void PackWholeTile(const BFloat16* from,
                                                                      int64_t stride, void* to) {
  const auto row = [&](int i) MILLRACE_AMX {
    if constexpr (!kInterleaved) return _mm512_loadu_si512(from + i * stride);
    const auto* even = reinterpret_cast<const __m256i*>(from + 2 * i * stride);
    const auto* odd = reinterpret_cast<const __m256i*>(from + (2 * i + 1) * stride);
    return _mm512_or_si512(_mm512_cvtepu16_epi32(_mm256_loadu_si256(even)),
                           _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(odd)), 16));
  };
  auto* out = static_cast<__m512i*>(to);
  if constexpr (kTransposed) {
    __m512i r[16];
    for (int i = 0; i < 16; ++i) r[i] = row(i);
    Transpose(r);
    for (int i = 0; i < 16; ++i) _mm512_store_si512(out + i, r[i]);
  } else {
    for (int i = 0; i < 16; ++i) _mm512_store_si512(out + i, row(i));
  }
}

// The same of a matrix that has only `rows` by `columns` elements left; the rest is zero.
template <bool kInterleaved, bool kTransposed>
MILLRACE_AMX void PackTile(const BFloat16* from, int64_t stride, int64_t rows, int64_t columns,
                           void* to) {
  constexpr int64_t kRows = kInterleaved ? 32 : 16, kColumns = kInterleaved ? 16 : 32;
  if (rows >= kRows && columns >= kColumns) {
    PackWholeTile<kInterleaved, kTransposed>(from, stride, to);
    return;
  }
  BFloat16 whole[kRows * kColumns] = {};
  for (int64_t i = 0; i < std::min(rows, kRows); ++i) {
    std::memcpy(whole + i * kColumns, from + i * stride,
                static_cast<size_t>(std::min(columns, kColumns)) * sizeof(BFloat16));
  }
  PackWholeTile<kInterleaved, kTransposed>(whole, kColumns, to);
}

// The panel of rows [begin, end) of op(a), or columns of op(b): for every 32 of k two tiles.
// `k_rows`: k runs along the rows of the matrix in memory.
struct PanelSource {
  const BFloat16* from;
  int64_t stride;
  bool is_b, k_rows;
  int64_t begin, end, k;
};

// Packs the panel's tile `tile`, of 2 · ⌈k / 32⌉, to its place in the packed panel.
MILLRACE_AMX __attribute__((noinline)) void PackTileOf(const PanelSource& s, int64_t tile,
                                                       std::byte* panel) {
  const int64_t k = tile / 2 * kTileDepth, i = s.begin + tile % 2 * 16;
  const int64_t left = std::max<int64_t>(s.end - i, 0), k_left = s.k - k;
  std::byte* to = panel + tile * kTileBytes;
  if (s.k_rows) {
    const BFloat16* p = s.from + k * s.stride + i;
    s.is_b ? PackTile<true, false>(p, s.stride, k_left, left, to)
           : PackTile<true, true>(p, s.stride, k_left, left, to);
  } else {
    const BFloat16* p = s.from + i * s.stride + k;
    s.is_b ? PackTile<false, true>(p, s.stride, left, k_left, to)
           : PackTile<false, false>(p, s.stride, left, k_left, to);
  }
}

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

MILLRACE_AMX inline __m512 FromBf16(__m256i v) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}

// A finished block of results on its way to c: with bias and addend, and rounded.
struct Store {
  alignas(64) float block[4][16][16];  // quarters of 16 × 16
  alignas(64) float bias[kBlock];
  std::byte* c;
  const std::byte* addend;
  int64_t stride;  // bytes
  bool f32;
  int64_t columns;
  int64_t next = 0, rows = 0;
};

template <bool kF32, bool kAddend>
MILLRACE_AMX inline __attribute__((always_inline)) void StoreWholeRows(const Store& s, int64_t row,
                                                                       int64_t end) {
  const __m512 bias0 = _mm512_load_ps(s.bias), bias1 = _mm512_load_ps(s.bias + 16);
  for (; row < end; ++row) {
    const float* from = s.block[row / 16 * 2][row % 16];
    std::byte* c = s.c + row * s.stride;
    const std::byte* addend = s.addend + row * s.stride;
    __m512 v0 = _mm512_add_ps(_mm512_load_ps(from), bias0);
    __m512 v1 = _mm512_add_ps(_mm512_load_ps(from + 256), bias1);
    if constexpr (kF32) {
      if constexpr (kAddend) {
        v0 = _mm512_add_ps(v0, _mm512_loadu_ps(addend));
        v1 = _mm512_add_ps(v1, _mm512_loadu_ps(addend + 64));
      }
      _mm512_storeu_ps(c, v0);
      _mm512_storeu_ps(c + 64, v1);
    } else {
      if constexpr (kAddend) {
        const auto* halves = reinterpret_cast<const __m256i*>(addend);
        v0 = _mm512_add_ps(v0, FromBf16(_mm256_loadu_si256(halves)));
        v1 = _mm512_add_ps(v1, FromBf16(_mm256_loadu_si256(halves + 1)));
      }
      _mm512_storeu_si512(c, (__m512i)_mm512_cvtne2ps_pbh(v1, v0));
    }
  }
}

// Rows of a block that reaches beyond c's last column.
MILLRACE_AMX __attribute__((noinline)) void StoreNarrowRows(const Store& s, int64_t row,
                                                            int64_t end) {
  for (; row < end; ++row) {
    for (int64_t half = 0; half * 16 < s.columns; ++half) {
      const int64_t left = s.columns - half * 16;
      const auto mask = static_cast<__mmask16>(left >= 16 ? 0xffff : (1u << left) - 1);
      __m512 v = _mm512_add_ps(_mm512_load_ps(s.block[row / 16 * 2 + half][row % 16]),
                               _mm512_load_ps(s.bias + half * 16));
      const int64_t at = row * s.stride + half * (s.f32 ? 64 : 32);
      if (s.f32) {
        if (s.addend != nullptr) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(mask, s.addend + at));
        _mm512_mask_storeu_ps(s.c + at, mask, v);
      } else {
        if (s.addend != nullptr) {
          v = _mm512_add_ps(v, FromBf16(_mm256_maskz_loadu_epi16(mask, s.addend + at)));
        }
        _mm256_mask_storeu_epi16(s.c + at, mask, (__m256i)_mm512_cvtneps_pbh(v));
      }
    }
  }
}

// The next `count` rows of the block.
MILLRACE_AMX inline __attribute__((always_inline)) void StoreRows(Store& s, int64_t count) {
  const int64_t row = s.next, end = std::min(row + count, s.rows);
  if (row >= end) return;
  s.next = end;
  if (s.columns < kBlock) {
    StoreNarrowRows(s, row, end);
  } else if (s.f32) {
    s.addend == nullptr ? StoreWholeRows<true, false>(s, row, end)
                        : StoreWholeRows<true, true>(s, row, end);
  } else {
    s.addend == nullptr ? StoreWholeRows<false, false>(s, row, end)
                        : StoreWholeRows<false, true>(s, row, end);
  }
}

// What is done between the tile instructions, which leave the vector units idle: storing the block
// before, and packing the panel to come.
struct Background {
  Store* store;
  int64_t rows_per_step;
  PanelSource source;
  std::byte* panel;
  int64_t tile, tiles;
  int64_t tiles_per_block;
};

// 32 × 32 results, summed over `steps` tiles of k on top of `partial` (nullptr: zero), to
// out[4][16][16].
MILLRACE_AMX inline __attribute__((always_inline)) void MultiplyBlock(
    const std::byte* a, const std::byte* b, int64_t steps, const float* partial, float* out,
    Background& background) {
  if (partial == nullptr) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, partial, 64);
    _tile_loadd(1, partial + 256, 64);
    _tile_loadd(2, partial + 512, 64);
    _tile_loadd(3, partial + 768, 64);
  }
  const int64_t tiles_end =
      std::min(background.tile + background.tiles_per_block, background.tiles);
  for (int64_t i = 0; i < steps; ++i) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    _tile_loadd(7, b + kTileBytes, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, a + kTileBytes, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    a += 2 * kTileBytes;
    b += 2 * kTileBytes;
    StoreRows(*background.store, background.rows_per_step);
    if (i > 0 && background.tile < tiles_end) {
      PackTileOf(background.source, background.tile++, background.panel);
    }
  }
  while (background.tile < tiles_end) {
    PackTileOf(background.source, background.tile++, background.panel);
  }
  StoreRows(*background.store, kBlock);
  _tile_stored(0, out, 64);
  _tile_stored(1, out + 256, 64);
  _tile_stored(2, out + 512, 64);
  _tile_stored(3, out + 768, 64);
}

PanelSource SourceOf(const Product& p, bool of_a, int64_t begin) {
  const int64_t end = std::min(begin + kBlock, of_a ? p.m : p.n);
  return of_a ? PanelSource{static_cast<const BFloat16*>(p.a),
                            p.a_stride,
                            false,
                            p.a_transposed,
                            begin,
                            end,
                            p.k}
              : PanelSource{static_cast<const BFloat16*>(p.b),
                            p.b_stride,
                            true,
                            !p.b_transposed,
                            begin,
                            end,
                            p.k};
}

// Where the block of results at row i and column j goes.
MILLRACE_AMX void Aim(const Product& p, int64_t i, int64_t j, Store& store) {
  const auto size = static_cast<int64_t>(SizeOf(p.c_type));
  const int64_t at = (i * p.c_stride + j) * size;
  store.c = static_cast<std::byte*>(p.c) + at;
  store.addend = p.addend == nullptr ? nullptr : static_cast<const std::byte*>(p.addend) + at;
  store.stride = p.c_stride * size;
  store.f32 = p.c_type == DType::kF32;
  store.columns = std::min(kBlock, p.n - j);
  store.next = 0;
  store.rows = std::min(kBlock, p.m - i);
  const auto mask = static_cast<uint32_t>((uint64_t{1} << store.columns) - 1);
  for (int64_t half = 0; half < 2; ++half) {
    const __m512 bias = p.bias == nullptr
                            ? _mm512_setzero_ps()
                            : FromBf16(_mm256_maskz_loadu_epi16(
                                  static_cast<__mmask16>(mask >> (16 * half)),
                                  static_cast<const BFloat16*>(p.bias) + j + 16 * half));
    _mm512_store_ps(store.bias + 16 * half, bias);
  }
}

// The results of one streamed panel, whose rows begin at `streamed`, with resident rows
// [begin, begin + count).
MILLRACE_AMX void MultiplyPanel(const Product& p, bool a_resident, const std::byte* resident,
                                int64_t begin, int64_t count, const std::byte* panel,
                                int64_t streamed, float* partials, Store (&stores)[2],
                                int64_t& turn, Background& background) {
  const int64_t steps = (p.k + kTileDepth - 1) / kTileDepth;
  const int64_t parts = (steps + kSteps - 1) / kSteps;
  const int64_t blocks = (count + kBlock - 1) / kBlock * parts;
  background.tiles_per_block = (background.tiles + blocks - 1) / blocks;
  for (int64_t group = 0; group < count; group += kGroup * kBlock) {
    const int64_t group_end = std::min(count, group + kGroup * kBlock);
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t step = steps * part / parts, step_end = steps * (part + 1) / parts;
      const bool last = part + 1 == parts;
      background.rows_per_step = (kBlock + step_end - step - 1) / (step_end - step);
      float* partial = partials;
      for (int64_t r = group; r < group_end; r += kBlock, partial += kBlock * kBlock) {
        const std::byte* mine = resident + (r / kBlock * steps + step) * 2 * kTileBytes;
        const std::byte* other = panel + step * 2 * kTileBytes;
        Store& store = stores[turn];
        MultiplyBlock(a_resident ? mine : other, a_resident ? other : mine, step_end - step,
                      part == 0 ? nullptr : partial, last ? &store.block[0][0][0] : partial,
                      background);
        if (!last) continue;
        a_resident ? Aim(p, begin + r, streamed, store) : Aim(p, streamed, begin + r, store);
        background.store = &store;
        turn ^= 1;
      }
    }
  }
}

}  // namespace

bool AmxAvailable() {
  static const bool available = DetectAmx();
  return available;
}

MILLRACE_AMX void RunAmxProduct(const Product& p, std::byte* scratch) {
  const Plan plan = PlanOf(p);
  const int64_t resident_count = plan.a_resident ? p.m : p.n;
  const int64_t streamed_count = plan.a_resident ? p.n : p.m;
  std::byte* resident = scratch;
  std::byte* panel = resident + plan.resident_rows / kBlock * PanelBytes(p.k);
  auto* partials = reinterpret_cast<float*>(panel + 2 * PanelBytes(p.k));

  std::byte* next_panel = panel + PanelBytes(p.k);
  const int64_t tiles = PanelBytes(p.k) / kTileBytes;
  Store stores[2];
  int64_t turn = 0;
  Background background{.store = &stores[1]};

  const TileConfig config;
  _tile_loadconfig(&config);
  for (int64_t begin = 0; begin < resident_count; begin += plan.resident_rows) {
    const int64_t count = std::min(plan.resident_rows, resident_count - begin);
    for (int64_t r = 0; r < count; r += kBlock) {
      const PanelSource source = SourceOf(p, plan.a_resident, begin + r);
      for (int64_t tile = 0; tile < tiles; ++tile) {
        PackTileOf(source, tile, resident + r / kBlock * PanelBytes(p.k));
      }
    }
    const PanelSource first = SourceOf(p, !plan.a_resident, 0);
    for (int64_t tile = 0; tile < tiles; ++tile) PackTileOf(first, tile, panel);
    for (int64_t streamed = 0; streamed < streamed_count; streamed += kBlock) {
      const bool more = streamed + kBlock < streamed_count;
      background.source = SourceOf(p, !plan.a_resident, streamed + kBlock);
      background.panel = next_panel;
      background.tile = 0;
      background.tiles = more ? tiles : 0;
      // The tile instructions' reads are not visible to the compiler.
      __asm__ volatile("" ::: "memory");
      MultiplyPanel(p, plan.a_resident, resident, begin, count, panel, streamed, partials, stores,
                    turn, background);
      std::swap(panel, next_panel);
    }
  }
  StoreRows(*background.store, kBlock);
  _tile_release();
}

#else

bool AmxAvailable() { return false; }
void RunAmxProduct(const Product&, std::byte*) {}

#endif

}  // namespace millrace
