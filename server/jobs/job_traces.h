// The traces that a job's workers have written. Workers write them whole, at any moment.
#ifndef MILLRACE_SERVER_JOBS_JOB_TRACES_H_
#define MILLRACE_SERVER_JOBS_JOB_TRACES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/paths.h"

namespace millrace {

// One trace, open.
class TraceReader {
 public:
  // The trace of `job_id` that begins with `first_step`, or the last one (0), from `offset` on.
  // NOT_FOUND TRACE_NOT_FOUND with those that are there; OUT_OF_RANGE OFFSET_OUT_OF_RANGE;
  // INVALID_ARGUMENT REQUEST_INVALID for a negative step.
  static absl::StatusOr<TraceReader> Open(const DataPaths& paths, const std::string& job_id,
                                          int64_t first_step, int64_t offset);
  TraceReader(TraceReader&& other) noexcept;
  TraceReader& operator=(TraceReader&& other) noexcept;
  ~TraceReader();

  int64_t first_step() const { return first_step_; }
  int64_t last_step() const { return last_step_; }
  int64_t size_bytes() const { return size_bytes_; }

  // Replaces `data` by the next bytes, at most 256 KiB; empty at the end.
  absl::Status Read(std::string* data);

 private:
  TraceReader() = default;

  std::string path_;
  int64_t first_step_ = 0, last_step_ = 0, size_bytes_ = 0;
  int64_t offset_ = 0;
  int fd_ = -1;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_JOBS_JOB_TRACES_H_
