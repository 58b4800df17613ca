// Following a job.
#ifndef MILLRACE_CLIENT_LIB_WATCH_H_
#define MILLRACE_CLIENT_LIB_WATCH_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/lib/connection.h"
#include "client/lib/resume_stream.h"

namespace millrace {

struct WatchOptions {
  // 0 is from the beginning.
  int64_t after_sequence = 0;
  ReconnectCallback on_reconnect;
};

// Whether nothing more happens in this state by itself or by request, short of ResumeJob.
bool HasEnded(v1::Job::State state);

// Calls `on_event` with each event after `after_sequence`, once and in order, across restarts of
// the daemon, until the job has ended or `on_event` returns false. Returns the job as it then is.
// NotFound; DataLoss when the daemon leaves an event out; CANCELLED when stopped.
absl::StatusOr<v1::Job> WatchJob(Connection& connection, const std::string& name,
                                 const WatchOptions& options,
                                 const std::function<bool(const v1::JobEvent&)>& on_event);

}  // namespace millrace

#endif  // MILLRACE_CLIENT_LIB_WATCH_H_
