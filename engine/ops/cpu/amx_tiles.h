// The tile registers of Intel's AMX: whether there are any, their configuration, and small
// products.
#ifndef MILLRACE_ENGINE_OPS_CPU_AMX_TILES_H_
#define MILLRACE_ENGINE_OPS_CPU_AMX_TILES_H_

#include <cstddef>
#include <cstdint>

#include "engine/ops/cpu/amx_packing.h"

namespace millrace {

// True where CPU and operating system have AMX for bf16; asks the system for its use.
bool AmxAvailable();

// The calling thread's tile registers, each 16 rows of 64 bytes, for as long as it lives. Needs
// AmxAvailable().
class AmxTileRegisters {
 public:
  AmxTileRegisters();
  ~AmxTileRegisters();
  AmxTileRegisters(const AmxTileRegisters&) = delete;
  AmxTileRegisters& operator=(const AmxTileRegisters&) = delete;
};

// A panel of op(a) as its tiles are loaded: packed, or in rows as they are.
struct AmxTiles {
  const std::byte* begin;
  int64_t stride;  // bytes from one row of a tile to the next
  int64_t second;  // bytes from a pair's first tile to its second
  int64_t next;    // bytes from one pair to the next

  AmxTiles At(int64_t pair) const { return {begin + pair * next, stride, second, next}; }
};

inline AmxTiles PackedAmxTiles(const std::byte* begin) {
  return {begin, 64, kAmxTileBytes, kAmxPairBytes};
}
// Whole rows and whole pairs; `stride` in elements.
inline AmxTiles AmxTilesInRows(const void* begin, int64_t stride) {
  const int64_t bytes = stride * static_cast<int64_t>(sizeof(BFloat16));
  return {static_cast<const std::byte*>(begin), bytes, 16 * bytes, 64};
}

// c[32, 32] = a · b over `pairs` pairs of tiles, or added to what is there. `b` is a packed panel;
// `c_stride` in elements. Needs AmxTileRegisters.
void MultiplyAmxBlock(AmxTiles a, const std::byte* b, int64_t pairs, bool accumulate, float* c,
                      int64_t c_stride);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_CPU_AMX_TILES_H_
