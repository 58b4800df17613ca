// Operands of matrix products rearranged into the tiles of amx_product.h.
#ifndef MILLRACE_ENGINE_OPS_CPU_AMX_PACKING_H_
#define MILLRACE_ENGINE_OPS_CPU_AMX_PACKING_H_

#include <cstddef>
#include <cstdint>

#include "engine/base/dtype.h"

namespace millrace {

inline constexpr int64_t kAmxTileBytes = 1024;  // 16 rows of 64 bytes
inline constexpr int64_t kAmxTileDepth = 32;    // elements of k in a tile
inline constexpr int64_t kAmxBlock = 32;        // rows of op(a), or columns of op(b), in a panel

// A panel's tiles lie in pairs: for every 32 of k the tile of its rows 0 to 15, then that of its
// rows 16 to 31.
inline constexpr int64_t kAmxPairBytes = 2 * kAmxTileBytes;

// Rows [begin, end), at most kAmxBlock, of op(a), or as many columns of op(b), over `k` elements
// from `from` on.
struct AmxPanel {
  const BFloat16* from;  // the whole operand's first row, at the panel's first k
  int64_t stride;        // elements from one row in memory to the next
  bool is_b;             // pairs of k side by side
  bool k_rows;           // k runs along the rows of the matrix in memory
  int64_t begin, end, k;

  int64_t pairs() const { return (k + kAmxTileDepth - 1) / kAmxTileDepth; }
};

// Packs the panel's pair `pair`, of panel.pairs(), to `to`, 64-byte aligned. What lies beyond the
// panel's rows or k is zero.
void PackAmxPair(const AmxPanel& panel, int64_t pair, std::byte* to);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_CPU_AMX_PACKING_H_
