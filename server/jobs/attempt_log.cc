#include "server/jobs/attempt_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/status_macros.h"

namespace millrace {
namespace {

constexpr int64_t kMaxReadBytes = 256 * 1024;

}  // namespace

AttemptLog::AttemptLog(std::string path, int64_t tail_lines)
    : path_(std::move(path)), tail_lines_(tail_lines) {}

AttemptLog::~AttemptLog() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<bool> AttemptLog::Open() {
  if (fd_ >= 0) return true;
  fd_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ >= 0) {
    if (tail_lines_ > 0) {
      MILLRACE_ASSIGN_OR_RETURN(offset_, FindTail(tail_lines_));
    }
    return true;
  }
  if (errno == ENOENT) return false;
  return ErrnoToStatus(errno, "open", path_);
}

absl::StatusOr<std::string> AttemptLog::ReadAt(int64_t offset, int64_t size) {
  std::string bytes(static_cast<size_t>(size), '\0');
  const ssize_t count = pread(fd_, bytes.data(), bytes.size(), offset);
  if (count < 0) return ErrnoToStatus(errno, "read", path_);
  bytes.resize(static_cast<size_t>(count));
  return bytes;
}

absl::StatusOr<int64_t> AttemptLog::FindTail(int64_t lines) {
  struct stat info;
  if (fstat(fd_, &info) != 0) return ErrnoToStatus(errno, "read", path_);
  // The newline that ends the last line does not begin another.
  int64_t end = info.st_size;
  int64_t newlines_left = lines + 1;
  bool at_end = true;
  while (end > 0) {
    const int64_t begin = std::max<int64_t>(0, end - kMaxReadBytes);
    MILLRACE_ASSIGN_OR_RETURN(const std::string bytes, ReadAt(begin, end - begin));
    for (int64_t i = static_cast<int64_t>(bytes.size()) - 1; i >= 0; --i) {
      const bool is_newline = bytes[static_cast<size_t>(i)] == '\n';
      // A last line without newline counts as one all the same.
      if (at_end && !is_newline) --newlines_left;
      at_end = false;
      if (is_newline && --newlines_left == 0) return begin + i + 1;
    }
    end = begin;
  }
  return 0;
}

absl::StatusOr<std::string> AttemptLog::Read(bool last_line_too) {
  MILLRACE_ASSIGN_OR_RETURN(const bool exists, Open());
  if (!exists) return "";
  MILLRACE_ASSIGN_OR_RETURN(std::string bytes, ReadAt(offset_, kMaxReadBytes));
  const bool is_full = static_cast<int64_t>(bytes.size()) == kMaxReadBytes;
  const size_t newline = bytes.rfind('\n');
  if (newline != std::string::npos && (is_full || !last_line_too)) {
    bytes.resize(newline + 1);
  } else if (newline == std::string::npos && !is_full && !last_line_too) {
    bytes.clear();
  }
  offset_ += static_cast<int64_t>(bytes.size());
  return bytes;
}

}  // namespace millrace
