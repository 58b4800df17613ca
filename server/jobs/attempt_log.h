// Reads the log of an attempt while its worker may still be writing it.
#ifndef MILLRACE_SERVER_JOBS_ATTEMPT_LOG_H_
#define MILLRACE_SERVER_JOBS_ATTEMPT_LOG_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace millrace {

class AttemptLog {
 public:
  // Begins at the last `tail_lines` lines there are now; 0 is the beginning. A file that does not
  // exist yet reads as empty.
  AttemptLog(std::string path, int64_t tail_lines);
  ~AttemptLog();
  AttemptLog(const AttemptLog&) = delete;
  AttemptLog& operator=(const AttemptLog&) = delete;

  // What comes next: whole lines, about 256 KiB at most, empty when there is none yet. A line
  // longer than that comes in pieces. With `last_line_too`, also a line at the end without newline.
  absl::StatusOr<std::string> Read(bool last_line_too);

 private:
  // False when there is no file yet.
  absl::StatusOr<bool> Open();
  absl::StatusOr<std::string> ReadAt(int64_t offset, int64_t size);
  absl::StatusOr<int64_t> FindTail(int64_t lines);

  const std::string path_;
  int64_t tail_lines_;
  int fd_ = -1;
  int64_t offset_ = 0;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_JOBS_ATTEMPT_LOG_H_
