// What the system says about memory.
#ifndef MILLRACE_ENGINE_TRAIN_SYSTEM_MEMORY_H_
#define MILLRACE_ENGINE_TRAIN_SYSTEM_MEMORY_H_

#include <cstdint>

namespace millrace {

// Bytes that this process may still take without swapping or passing its control group's limit; the
// largest int64 when the system does not say.
int64_t FreeMemoryBytes();

// Most bytes of this process that were ever in memory at once; 0 when the system does not say.
int64_t PeakResidentBytes();

}  // namespace millrace

#endif  // MILLRACE_ENGINE_TRAIN_SYSTEM_MEMORY_H_
