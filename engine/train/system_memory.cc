#include "engine/train/system_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace millrace {
namespace {

// The number in a line "key   123 kB" of a file in /proc, in bytes.
std::optional<int64_t> KilobytesOf(const char* path, const std::string& key) {
  std::ifstream file(path);
  std::string word;
  int64_t value = 0;
  while (file >> word) {
    if (word == key && file >> value) return value * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

// nullopt for "max" as for a missing file.
std::optional<int64_t> NumberIn(const char* path) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? std::optional<int64_t>(value) : std::nullopt;
}

}  // namespace

int64_t FreeMemoryBytes() {
  int64_t available =
      KilobytesOf("/proc/meminfo", "MemAvailable:").value_or(std::numeric_limits<int64_t>::max());
  const std::optional<int64_t> limit = NumberIn("/sys/fs/cgroup/memory.max");
  const std::optional<int64_t> used = NumberIn("/sys/fs/cgroup/memory.current");
  if (limit && used) available = std::min(available, std::max<int64_t>(*limit - *used, 0));
  return available;
}

int64_t PeakResidentBytes() { return KilobytesOf("/proc/self/status", "VmHWM:").value_or(0); }

}  // namespace millrace
