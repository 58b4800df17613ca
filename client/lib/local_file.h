// Files on this side of a transfer.
#ifndef MILLRACE_CLIENT_LIB_LOCAL_FILE_H_
#define MILLRACE_CLIENT_LIB_LOCAL_FILE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace millrace {

// What is sent in one message, and read at once.
inline constexpr size_t kChunkBytes = 1 << 20;

// An open file; closed when it goes.
class LocalFile {
 public:
  // For reading. NotFound, PermissionDenied, …, naming the path.
  static absl::StatusOr<LocalFile> OpenForReading(const std::string& path);
  // For reading and writing; made if it is not there, with the folders above it.
  static absl::StatusOr<LocalFile> OpenForWriting(const std::string& path);

  LocalFile(LocalFile&& other) noexcept;
  LocalFile& operator=(LocalFile&&) = delete;
  ~LocalFile();

  absl::StatusOr<int64_t> Size() const;
  // Up to `size` bytes from `offset`; fewer only at the end of the file.
  absl::Status Read(int64_t offset, size_t size, std::string* data) const;
  // ResourceExhausted when the disk is full.
  absl::Status Write(int64_t offset, absl::string_view data);
  absl::Status Truncate(int64_t size);
  absl::Status Sync();

 private:
  LocalFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  std::string path_;
  int descriptor_;
};

// An error about `path` made from errno.
absl::Status FileError(const std::string& what, const std::string& path);

// InvalidArgument when something is at `path` that is not a file: a folder, or a device, which must
// not be replaced by a file.
absl::Status CheckReplaceable(const std::string& path);

// The file itself, or every file below a folder: sorted, relative to it (a file's own name),
// without hidden files and folders. InvalidArgument when there is none; NotFound.
absl::StatusOr<std::vector<std::string>> ListFiles(const std::string& path);

// SHA-256 of the first `size` bytes. `on_bytes` is told what was read, and ends the work with
// CANCELLED by returning false.
absl::StatusOr<std::string> HashFile(const LocalFile& file, int64_t size,
                                     const std::function<bool(int64_t bytes)>& on_bytes);

}  // namespace millrace

#endif  // MILLRACE_CLIENT_LIB_LOCAL_FILE_H_
