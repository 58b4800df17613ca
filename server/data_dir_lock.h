// Keeps two daemons from sharing a data folder.
#ifndef MILLRACE_SERVER_DATA_DIR_LOCK_H_
#define MILLRACE_SERVER_DATA_DIR_LOCK_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/base/paths.h"

namespace millrace {

// Held as long as it lives, and no longer than its process.
class DataDirLock {
 public:
  // Makes the folder, for its user only, where it is not there. FAILED_PRECONDITION when another
  // daemon has it; the message names that process.
  static absl::StatusOr<std::unique_ptr<DataDirLock>> Acquire(const DataPaths& paths);
  ~DataDirLock();
  DataDirLock(const DataDirLock&) = delete;
  DataDirLock& operator=(const DataDirLock&) = delete;

 private:
  explicit DataDirLock(int fd) : fd_(fd) {}
  const int fd_;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_DATA_DIR_LOCK_H_
