// Fetching the trace that a job has written.
#ifndef MILLRACE_CLIENT_LIB_TRACE_DOWNLOAD_H_
#define MILLRACE_CLIENT_LIB_TRACE_DOWNLOAD_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "client/lib/connection.h"
#include "client/lib/resume_stream.h"

namespace millrace {

struct TraceInfo {
  int64_t first_step = 0;
  int64_t last_step = 0;
  int64_t size_bytes = 0;
  // Where it lies now.
  std::string path;
};

// The trace of the job `name` that begins with `first_step`, or its last one (0), into the file
// that `path_of` names once its steps are known; a file of that name is replaced once the trace is
// whole.
absl::StatusOr<TraceInfo> DownloadTrace(Connection& connection, const std::string& name,
                                        int64_t first_step,
                                        const std::function<std::string(const TraceInfo&)>& path_of,
                                        const ReconnectCallback& on_reconnect);

}  // namespace millrace

#endif  // MILLRACE_CLIENT_LIB_TRACE_DOWNLOAD_H_
