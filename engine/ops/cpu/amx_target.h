// What code for AMX is compiled with. For .cc files alone.
#ifndef MILLRACE_ENGINE_OPS_CPU_AMX_TARGET_H_
#define MILLRACE_ENGINE_OPS_CPU_AMX_TARGET_H_

#if defined(__x86_64__) && defined(__linux__)

#include <immintrin.h>

#define MILLRACE_HAVE_AMX 1
#define MILLRACE_AMX \
  __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define MILLRACE_AMX_INLINE MILLRACE_AMX inline __attribute__((always_inline))

// GCC takes what the intrinsics leave undefined on purpose for a mistake.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"

#else

#define MILLRACE_HAVE_AMX 0

#endif

#endif  // MILLRACE_ENGINE_OPS_CPU_AMX_TARGET_H_
