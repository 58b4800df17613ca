// Copies between host and device memory on the CPU.
#ifndef MILLRACE_ENGINE_DEVICE_CPU_COPY_H_
#define MILLRACE_ENGINE_DEVICE_CPU_COPY_H_

#include <cstddef>

namespace millrace {

// memcpy, but large pieces are written past the caches: no line is read only to be overwritten, and
// what the compute threads have in their caches stays there. `to` and `from` don't overlap.
void CopyMemory(void* to, const void* from, size_t bytes);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DEVICE_CPU_COPY_H_
