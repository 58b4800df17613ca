// What the box has and what is in use, read from /proc and the file system.
#ifndef MILLRACE_SERVER_OBSERVE_HOST_READER_H_
#define MILLRACE_SERVER_OBSERVE_HOST_READER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace millrace {

// Does not change while the daemon runs.
struct HostDescription {
  std::string hostname;
  // `Debian GNU/Linux 12 (bookworm)`.
  std::string operating_system;
  // That this process may use.
  int cores = 0;
  // As the processor calls itself.
  std::string processor;
  // Instruction sets that the engine makes use of, of those the processor has.
  std::vector<std::string> processor_features;
};
HostDescription ReadHostDescription();

struct HostMemory {
  int64_t total_bytes = 0;
  int64_t available_bytes = 0;
};
absl::StatusOr<HostMemory> ReadHostMemory();

struct StorageSpace {
  int64_t total_bytes = 0;
  // That an ordinary user may fill.
  int64_t free_bytes = 0;
};
// Of the file system that holds `path`.
absl::StatusOr<StorageSpace> ReadStorageSpace(const std::string& path);

// Of this process; 0 when it cannot be read.
int64_t ReadResidentBytes();

}  // namespace millrace

#endif  // MILLRACE_SERVER_OBSERVE_HOST_READER_H_
