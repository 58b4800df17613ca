#include "server/observe/host_reader.h"

#include <sched.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "engine/base/file.h"

namespace millrace {
namespace {

// Names as in /proc/cpuinfo.
constexpr const char* kUsedFeatures[] = {"avx2",        "fma",      "avx512f", "avx512_bf16",
                                         "avx512_vnni", "amx_tile", "amx_bf16"};

// What follows `separator`, without blanks, on the first line that begins with `key`; empty without
// one.
std::string FindValue(const std::string& path, absl::string_view key, char separator) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    const size_t at = line.find(separator);
    if (at == std::string::npos || !absl::StartsWith(line, key)) continue;
    return std::string(absl::StripAsciiWhitespace(line.substr(at + 1)));
  }
  return "";
}

int64_t MemInfoBytes(absl::string_view key) {
  const std::string value = FindValue("/proc/meminfo", key, ':');
  int64_t kibibytes = 0;
  if (!absl::SimpleAtoi(absl::StripSuffix(value, " kB"), &kibibytes)) return -1;
  return kibibytes * 1024;
}

int CountCores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
}

}  // namespace

HostDescription ReadHostDescription() {
  HostDescription host;
  utsname names;
  if (uname(&names) == 0) host.hostname = names.nodename;
  host.operating_system = FindValue("/etc/os-release", "PRETTY_NAME", '=');
  host.operating_system.erase(
      std::remove(host.operating_system.begin(), host.operating_system.end(), '"'),
      host.operating_system.end());
  host.cores = CountCores();
  host.processor = FindValue("/proc/cpuinfo", "model name", ':');
  const std::vector<std::string> flags =
      absl::StrSplit(FindValue("/proc/cpuinfo", "flags", ':'), ' ', absl::SkipEmpty());
  for (const char* feature : kUsedFeatures) {
    if (std::find(flags.begin(), flags.end(), feature) != flags.end()) {
      host.processor_features.push_back(feature);
    }
  }
  return host;
}

absl::StatusOr<HostMemory> ReadHostMemory() {
  const HostMemory memory{MemInfoBytes("MemTotal"), MemInfoBytes("MemAvailable")};
  if (memory.total_bytes < 0 || memory.available_bytes < 0) {
    return absl::UnavailableError("/proc/meminfo: MemTotal or MemAvailable cannot be read");
  }
  return memory;
}

absl::StatusOr<StorageSpace> ReadStorageSpace(const std::string& path) {
  struct statvfs info;
  if (statvfs(path.c_str(), &info) != 0) return ErrnoToStatus(errno, "read the free space", path);
  const auto block = static_cast<int64_t>(info.f_frsize);
  return StorageSpace{static_cast<int64_t>(info.f_blocks) * block,
                      static_cast<int64_t>(info.f_bavail) * block};
}

int64_t ReadResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size_pages = 0, resident_pages = 0;
  file >> size_pages >> resident_pages;
  return resident_pages * sysconf(_SC_PAGESIZE);
}

}  // namespace millrace
