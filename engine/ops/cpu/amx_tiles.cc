#include "engine/ops/cpu/amx_tiles.h"

#include "engine/ops/cpu/amx_target.h"

#if MILLRACE_HAVE_AMX
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace millrace {

#if MILLRACE_HAVE_AMX

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

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// GCC compiles constructors for their class's target, not for their own.
MILLRACE_AMX void LoadConfig() {
  // In constant memory, for GCC sees only the first bytes read.
  static constexpr TileConfig kConfig;
  _tile_loadconfig(&kConfig);
}
MILLRACE_AMX void Release() { _tile_release(); }

}  // namespace

bool AmxAvailable() {
  static const bool available = DetectAmx();
  return available;
}

AmxTileRegisters::AmxTileRegisters() { LoadConfig(); }
AmxTileRegisters::~AmxTileRegisters() { Release(); }

MILLRACE_AMX void MultiplyAmxBlock(AmxTiles a, const std::byte* b, int64_t pairs, bool accumulate,
                                   float* c, int64_t c_stride) {
  // The tile instructions' reads are not visible to the compiler.
  __asm__ volatile("" ::: "memory");
  const int64_t stride = c_stride * static_cast<int64_t>(sizeof(float));
  float* lower = c + 16 * c_stride;
  if (accumulate) {
    _tile_loadd(0, c, stride);
    _tile_loadd(1, c + 16, stride);
    _tile_loadd(2, lower, stride);
    _tile_loadd(3, lower + 16, stride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t i = 0; i < pairs; ++i) {
    _tile_loadd(4, a.begin, a.stride);
    _tile_loadd(6, b, 64);
    _tile_loadd(7, b + kAmxTileBytes, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, a.begin + a.second, a.stride);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    a.begin += a.next;
    b += kAmxPairBytes;
  }
  _tile_stored(0, c, stride);
  _tile_stored(1, c + 16, stride);
  _tile_stored(2, lower, stride);
  _tile_stored(3, lower + 16, stride);
  __asm__ volatile("" ::: "memory");
}

#else

bool AmxAvailable() { return false; }
AmxTileRegisters::AmxTileRegisters() {}
AmxTileRegisters::~AmxTileRegisters() {}
void MultiplyAmxBlock(AmxTiles, const std::byte*, int64_t, bool, float*, int64_t) {}

#endif

}  // namespace millrace
