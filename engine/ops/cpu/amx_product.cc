#include "engine/ops/cpu/amx_product.h"

#include <algorithm>
#include <utility>

#include "engine/ops/cpu/amx_packing.h"
#include "engine/ops/cpu/amx_store.h"
#include "engine/ops/cpu/amx_target.h"
#include "engine/ops/cpu/amx_tiles.h"

namespace millrace {
namespace {

constexpr int64_t kBlock = kAmxBlock;
constexpr int64_t kCacheLine = 64;

// Pairs of tiles that are multiplied at a time. So much of a panel of rows stays in the first-level
// cache while the columns pass by.
constexpr int64_t kSteps = 16;
// Packed columns of op(b) that stay in the second-level cache.
constexpr int64_t kColumnBytes = 800 << 10, kMostColumns = 1536;
// Elements of k of columns that are packed together.
constexpr int64_t kMostDepth = 1024;
// Rows of op(a) that are multiplied by these columns before the next: what is packed of them, and
// sums in f32 that wait for the rest of k.
constexpr int64_t kRowBytes = 3400 << 10;

constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr int64_t Parts(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

constexpr int64_t PanelBytes(int64_t k) { return Parts(k, kAmxTileDepth) * kAmxPairBytes; }

// How a product is divided: whole blocks, about equal shares.
struct Plan {
  int64_t depth;    // of k, multiplied before the rest of it
  int64_t columns;  // of op(b), packed together
  int64_t rows;     // of op(a), multiplied by these before the next
  bool in_place;    // whole panels of op(a) need no packing
  bool kept;        // rows are packed once, and not for all columns anew

  int64_t column_blocks() const { return columns / kBlock; }
  int64_t row_blocks() const { return rows / kBlock; }
  size_t column_bytes() const { return column_blocks() * PanelBytes(depth); }
  size_t row_bytes(int64_t k) const {
    return (in_place ? 1 : row_blocks()) * (kept ? Parts(k, depth) : 1) * PanelBytes(depth);
  }
  // Sums of a panel of rows with all these columns.
  size_t strip_bytes() const { return column_blocks() * kAmxBlockFloats * sizeof(float); }
  // Two strips that are finished, and those that wait.
  size_t sum_bytes(int64_t k) const { return strip_bytes() * (2 + (depth < k ? row_blocks() : 0)); }
};

int64_t Share(int64_t count, int64_t most) {
  const int64_t shares = Parts(Parts(count, kBlock), std::max<int64_t>(1, most / kBlock));
  return Parts(Parts(count, kBlock), shares) * kBlock;
}

Plan PlanOf(const Product& p) {
  Plan plan;
  plan.depth = RoundUp(Parts(p.k, Parts(p.k, kMostDepth)), kAmxTileDepth);
  const int64_t panel_bytes = PanelBytes(plan.depth), depths = Parts(p.k, plan.depth);
  plan.columns = Share(p.n, std::min(kColumnBytes / panel_bytes * kBlock, kMostColumns));
  plan.in_place = !p.a_transposed;
  plan.kept = !plan.in_place && depths * panel_bytes <= kRowBytes / 2;
  const int64_t packed = plan.in_place ? 0 : panel_bytes * (plan.kept ? depths : 1);
  const int64_t sums = depths > 1 ? static_cast<int64_t>(plan.strip_bytes()) : 0;
  const int64_t rows = packed + sums > 0 ? kRowBytes / (packed + sums) * kBlock : p.m;
  plan.rows = Share(p.m, rows);
  return plan;
}

}  // namespace

bool AmxSuits(const Product& p) {
  // Below, packing costs more than it saves.
  constexpr int64_t kFewestRows = 32, kFewestProducts = 8 << 20;
  return p.type == DType::kBF16 && std::min(p.m, p.n) >= kFewestRows &&
         p.m * p.n * p.k >= kFewestProducts;
}

size_t AmxScratchBytes(const Product& p) {
  const Plan plan = PlanOf(p);
  return plan.column_bytes() + plan.row_bytes(p.k) + plan.sum_bytes(p.k);
}
// With two finished strips, and one packed panel where rows are in place.
static_assert(kColumnBytes + kRowBytes + 2 * kMostColumns * kBlock * 4 + PanelBytes(kMostDepth) <=
              static_cast<int64_t>(kAmxScratchBytes));

#if MILLRACE_HAVE_AMX

namespace {

// A matrix, or a part of one, in memory.
struct Region {
  const std::byte* begin;
  int64_t stride;  // bytes
  int64_t rows, row_bytes;
};

// Brings memory to the second-level cache, a few lines at a time, row by row as the processor's own
// prefetcher likes it.
class Prefetcher {
 public:
  void Begin(const Region& region) {
    row_ = region.begin;
    stride_ = region.stride;
    rows_ = region.rows;
    row_bytes_ = region.row_bytes + kCacheLine - 1;
    at_ = 0;
  }
  void End() { rows_ = 0; }
  int64_t lines() const { return rows_ * (row_bytes_ / kCacheLine); }
  void Step(int64_t count) {
    for (; count > 0 && rows_ > 0; --count) {
      __builtin_prefetch(row_ + at_, 0, 2);
      at_ += kCacheLine;
      if (at_ < row_bytes_) continue;
      at_ = 0;
      row_ += stride_;
      --rows_;
    }
  }

 private:
  const std::byte* row_ = nullptr;
  int64_t stride_ = 0, rows_ = 0, row_bytes_ = 0, at_ = 0;
};

// What is done between the tile instructions, which leave the rest of the core idle: storing the
// strip before, and prefetching what comes next.
struct Background {
  AmxStore store;
  int64_t pieces;  // a step, as the others
  Prefetcher columns, rows;
  int64_t column_lines, row_lines;
};

// 32 × 32 results, summed over `steps` pairs of tiles on top of `partial` (nullptr: zero), to
// out[4][16][16]. The tiles of op(b) are loaded past the first-level cache: each is used once
// before all the others come by.
MILLRACE_AMX void MultiplyBlock(AmxTiles a, const std::byte* b, int64_t steps, const float* partial,
                                float* out, Background& background) {
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
  for (int64_t i = 0; i < steps; ++i) {
    _tile_loadd(4, a.begin, a.stride);
    _tile_stream_loadd(6, b, 64);
    _tile_stream_loadd(7, b + kAmxTileBytes, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, a.begin + a.second, a.stride);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    a.begin += a.next;
    b += kAmxPairBytes;
    background.store.Step(background.pieces);
    background.rows.Step(background.row_lines);
    background.columns.Step(background.column_lines);
  }
  _tile_stored(0, out, 64);
  _tile_stored(1, out + 256, 64);
  _tile_stored(2, out + 512, 64);
  _tile_stored(3, out + 768, 64);
}

// One product on its way.
class Multiplication {
 public:
  Multiplication(const Product& product, std::byte* scratch)
      : p_(product),
        plan_(PlanOf(product)),
        deep_(plan_.depth < product.k),
        packed_columns_(scratch),
        packed_rows_(packed_columns_ + plan_.column_bytes()),
        strips_(reinterpret_cast<float*>(packed_rows_ + plan_.row_bytes(product.k))),
        partials_(strips_ + 2 * plan_.column_blocks() * kAmxBlockFloats) {}

  MILLRACE_AMX void Run() {
    const AmxTileRegisters registers;
    for (int64_t i = 0; i < p_.m; i += plan_.rows) {
      const Range rows = {i, std::min(i + plan_.rows, p_.m)};
      for (int64_t k = 0; plan_.kept && k < p_.k; k += plan_.depth) {
        Pack(true, rows, k, PackedRows(k, 0));
      }
      for (int64_t j = 0; j < p_.n; j += plan_.columns) {
        const Range columns = {j, std::min(j + plan_.columns, p_.n)};
        for (int64_t k = 0; k < p_.k; k += plan_.depth) MultiplyRows(rows, columns, k);
      }
    }
    background_.store.Finish();
    background_.store.Flush();
  }

 private:
  struct Range {
    int64_t begin, end;
    int64_t blocks() const { return Parts(end - begin, kBlock); }
  };

  int64_t DepthAt(int64_t k) const { return std::min(plan_.depth, p_.k - k); }

  AmxPanel Panel(bool of_a, int64_t begin, int64_t k) const {
    AmxPanel panel = {.is_b = !of_a, .begin = begin, .k = DepthAt(k)};
    panel.stride = of_a ? p_.a_stride : p_.b_stride;
    panel.k_rows = of_a ? p_.a_transposed : !p_.b_transposed;
    panel.end = std::min(begin + kBlock, of_a ? p_.m : p_.n);
    panel.from =
        static_cast<const BFloat16*>(of_a ? p_.a : p_.b) + k * (panel.k_rows ? panel.stride : 1);
    return panel;
  }

  Region Memory(bool of_a, Range range, int64_t k) const {
    const AmxPanel panel = Panel(of_a, range.begin, k);
    const int64_t count = range.end - range.begin;
    return {.begin = reinterpret_cast<const std::byte*>(
                panel.from + (panel.k_rows ? panel.begin : panel.begin * panel.stride)),
            .stride = panel.stride * 2,
            .rows = panel.k_rows ? panel.k : count,
            .row_bytes = 2 * (panel.k_rows ? count : panel.k)};
  }

  // Packs panels one after the other to `to`, in the order in which they lie in memory.
  void Pack(bool of_a, Range range, int64_t k, std::byte* to) const {
    const AmxPanel first = Panel(of_a, range.begin, k);
    const int64_t panel_bytes = first.pairs() * kAmxPairBytes;
    for (int64_t outer = 0; outer < (first.k_rows ? first.pairs() : range.blocks()); ++outer) {
      for (int64_t inner = 0; inner < (first.k_rows ? range.blocks() : first.pairs()); ++inner) {
        const int64_t pair = first.k_rows ? outer : inner, panel = first.k_rows ? inner : outer;
        PackAmxPair(Panel(of_a, range.begin + panel * kBlock, k), pair,
                    to + panel * panel_bytes + pair * kAmxPairBytes);
      }
    }
  }

  // Where packed panel `panel` of the rows is, over one depth from k on.
  std::byte* PackedRows(int64_t k, int64_t panel) const {
    const int64_t before = plan_.kept ? k / plan_.depth * plan_.row_blocks() : 0;
    return packed_rows_ + before * PanelBytes(plan_.depth) + panel * PanelBytes(DepthAt(k));
  }

  // The panel of rows from `i` on.
  AmxTiles RowTiles(Range rows, int64_t i, int64_t k) const {
    if (!plan_.in_place) return PackedAmxTiles(PackedRows(k, (i - rows.begin) / kBlock));
    if (DepthAt(k) % kAmxTileDepth == 0 && i + kBlock <= rows.end) {
      const auto* a = static_cast<const BFloat16*>(p_.a) + i * p_.a_stride + k;
      return AmxTilesInRows(a, p_.a_stride);
    }
    Pack(true, {i, std::min(i + kBlock, rows.end)}, k, packed_rows_);
    return PackedAmxTiles(packed_rows_);
  }

  // Products of rows and columns, over one depth from k on.
  MILLRACE_AMX void MultiplyRows(Range rows, Range columns, int64_t k) {
    Pack(false, columns, k, packed_columns_);
    if (!plan_.in_place && !plan_.kept) Pack(true, rows, k, PackedRows(k, 0));
    const int64_t steps = Parts(DepthAt(k), kAmxTileDepth);
    const int64_t strip_steps = columns.blocks() * steps;
    background_.columns.End();
    if (!deep_ && columns.end < p_.n) {
      background_.columns.Begin(
          Memory(false, {columns.end, std::min(columns.end + plan_.columns, p_.n)}, k));
    }
    background_.column_lines = Parts(background_.columns.lines(), rows.blocks() * strip_steps);
    background_.pieces = Parts(columns.blocks() * kBlock, strip_steps);
    float* partial = partials_;
    for (int64_t i = rows.begin; i < rows.end; i += kBlock) {
      const AmxTiles tiles = RowTiles(rows, i, k);
      background_.rows.End();
      if (plan_.in_place && i + kBlock < rows.end) {
        background_.rows.Begin(Memory(true, {i + kBlock, std::min(i + 2 * kBlock, rows.end)}, k));
      }
      background_.row_lines = Parts(background_.rows.lines(), strip_steps);
      float* strip = strips_ + turn_ * plan_.column_blocks() * kAmxBlockFloats;
      // The tile instructions' reads are not visible to the compiler.
      __asm__ volatile("" ::: "memory");
      MultiplyStrip(columns, k, steps, tiles, deep_ ? partial : strip, strip);
      partial += columns.blocks() * kAmxBlockFloats;
      if (k + plan_.depth < p_.k) continue;
      background_.store.Finish();
      background_.store.Begin(p_, i, columns.begin, columns.end, strip);
      turn_ ^= 1;
    }
  }

  // Products of a panel of rows and the columns: the sums so far are in `partial`, the finished
  // ones go to `strip`.
  MILLRACE_AMX void MultiplyStrip(Range columns, int64_t k, int64_t steps, const AmxTiles& a,
                                  float* partial, float* strip) {
    const int64_t parts = Parts(steps, kSteps);
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t step = steps * part / parts, step_end = steps * (part + 1) / parts;
      const bool first = k == 0 && part == 0;
      const bool last = k + plan_.depth >= p_.k && part + 1 == parts;
      for (int64_t block = 0; block < columns.blocks(); ++block) {
        const int64_t at = block * kAmxBlockFloats;
        MultiplyBlock(a.At(step), packed_columns_ + (block * steps + step) * kAmxPairBytes,
                      step_end - step, first ? nullptr : partial + at,
                      (last ? strip : partial) + at, background_);
      }
    }
  }

  const Product& p_;
  const Plan plan_;
  const bool deep_;
  std::byte *packed_columns_, *packed_rows_;
  float *strips_, *partials_;
  int64_t turn_ = 0;  // of two strips
  Background background_ = {};
};

}  // namespace

MILLRACE_AMX void RunAmxProduct(const Product& p, std::byte* scratch) {
  Multiplication(p, scratch).Run();
}

#else

void RunAmxProduct(const Product&, std::byte*) {}

#endif

}  // namespace millrace
