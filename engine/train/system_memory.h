// What the system says about memory.
#ifndef MILLRACE_ENGINE_TRAIN_SYSTEM_MEMORY_H_
#define MILLRACE_ENGINE_TRAIN_SYSTEM_MEMORY_H_

#include <cstdint>
#include <string>

namespace millrace {

// Share of the memory that a job may plan with; the rest is for the system and for what is not
// planned.
inline constexpr double kUsableShareOfMemory = 0.9;

// Bytes that this process may still take without swapping or passing the limit of a control group
// (v2) that it is in, where pages of files that nobody uses count as free; the largest int64 when
// the system does not say. `root` is before the system's paths.
int64_t FreeMemoryBytes(const std::string& root = "");

// Bytes of memory of this machine, or of the control group (v2) with the lowest limit; the largest
// int64 when the system does not say.
int64_t TotalMemoryBytes(const std::string& root = "");

// Most bytes of this process that were ever in memory at once; 0 when the system does not say.
int64_t PeakResidentBytes();

}  // namespace millrace

#endif  // MILLRACE_ENGINE_TRAIN_SYSTEM_MEMORY_H_
