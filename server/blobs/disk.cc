#include "server/blobs/disk.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>

#include "engine/base/file.h"

namespace millrace {

Disk* Disk::System() {
  static Disk* const disk = new Disk();
  return disk;
}

absl::StatusOr<int64_t> Disk::FreeBytes(const std::string& folder) {
  struct statvfs space;
  if (statvfs(folder.c_str(), &space) != 0) {
    return ErrnoToStatus(errno, "read the free space of", folder);
  }
  return static_cast<int64_t>(space.f_bavail) * static_cast<int64_t>(space.f_frsize);
}

absl::Status Disk::Append(int fd, absl::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return ErrnoToStatus(errno, "write", path);
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status Disk::Sync(int fd, const std::string& path) {
  if (fsync(fd) != 0) return ErrnoToStatus(errno, "sync", path);
  return absl::OkStatus();
}

}  // namespace millrace
