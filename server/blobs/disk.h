// The seam between the stores of this folder and the file system, through which tests let a disk
// fill up.
#ifndef MILLRACE_SERVER_BLOBS_DISK_H_
#define MILLRACE_SERVER_BLOBS_DISK_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace millrace {

// The real file system; a test overrides what it wants to fail. Safe for use by several threads.
class Disk {
 public:
  virtual ~Disk() = default;

  // The one that does what it says; lives forever.
  static Disk* System();

  // Bytes that may still be written to the file system that holds `folder`.
  virtual absl::StatusOr<int64_t> FreeBytes(const std::string& folder);

  // Writes all of `bytes` at the end of `fd`, which was opened with O_APPEND on `path`.
  // RESOURCE_EXHAUSTED when the disk is full; a part may be written then.
  virtual absl::Status Append(int fd, absl::string_view bytes, const std::string& path);

  // Makes what was written to `fd` last.
  virtual absl::Status Sync(int fd, const std::string& path);
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_BLOBS_DISK_H_
