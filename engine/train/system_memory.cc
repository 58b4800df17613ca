#include "engine/train/system_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace millrace {
namespace {

constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();

// The number after `key` in a file of lines that begin with a key.
std::optional<int64_t> NumberOf(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string word;
  int64_t value = 0;
  while (file >> word) {
    if (word == key && file >> value) return value;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

// In bytes, of a line "key   123 kB" of a file in /proc.
std::optional<int64_t> KilobytesOf(const std::string& path, const std::string& key) {
  std::optional<int64_t> value = NumberOf(path, key);
  if (value) *value *= 1024;
  return value;
}

// nullopt for "max" as for a missing file.
std::optional<int64_t> NumberIn(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? std::optional<int64_t>(value) : std::nullopt;
}

// Folders of this process's control group and of all above it, as far as they are in sight.
std::vector<std::string> ControlGroups(const std::string& root) {
  const std::string mount = root + "/sys/fs/cgroup";
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line, group;
  while (std::getline(file, line)) {
    if (line.rfind("0::", 0) == 0) group = line.substr(3);
  }
  std::vector<std::string> folders = {mount};
  for (size_t end = 1; end < group.size();) {
    end = std::min(group.find('/', end + 1), group.size());
    folders.push_back(mount + group.substr(0, end));
  }
  return folders;
}

}  // namespace

int64_t FreeMemoryBytes(const std::string& root) {
  int64_t available = KilobytesOf(root + "/proc/meminfo", "MemAvailable:").value_or(kUnknown);
  for (const std::string& group : ControlGroups(root)) {
    const std::optional<int64_t> limit = NumberIn(group + "/memory.max");
    const std::optional<int64_t> used = NumberIn(group + "/memory.current");
    if (!limit || !used) continue;
    const int64_t unused_files = NumberOf(group + "/memory.stat", "inactive_file").value_or(0);
    available = std::min(available, std::max<int64_t>(*limit - *used + unused_files, 0));
  }
  return available;
}

int64_t TotalMemoryBytes(const std::string& root) {
  int64_t total = KilobytesOf(root + "/proc/meminfo", "MemTotal:").value_or(kUnknown);
  for (const std::string& group : ControlGroups(root)) {
    total = std::min(total, NumberIn(group + "/memory.max").value_or(kUnknown));
  }
  return total;
}

int64_t PeakResidentBytes() { return KilobytesOf("/proc/self/status", "VmHWM:").value_or(0); }

}  // namespace millrace
