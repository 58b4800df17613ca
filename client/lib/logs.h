// Reading and following a job's log.
#ifndef MILLRACE_CLIENT_LIB_LOGS_H_
#define MILLRACE_CLIENT_LIB_LOGS_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/lib/connection.h"
#include "client/lib/resume_stream.h"

namespace millrace {

struct LogOptions {
  // 0 is the newest.
  int attempt = 0;
  // Only the last lines; 0 is all.
  int tail_lines = 0;
  ReconnectCallback on_reconnect;
  // Called before the first byte of each attempt's log.
  std::function<void(int attempt)> on_attempt;
};

using LogCallback = std::function<void(absl::string_view data)>;

// The log of one attempt as it is now.
absl::Status ReadLog(Connection& connection, const std::string& name, const LogOptions& options,
                     const LogCallback& on_data);

// The log of one attempt, each byte once across restarts of the daemon, until that attempt has
// ended. With attempt 0, goes on with the attempts that follow (a crash, a pause) until the job has
// ended.
absl::Status FollowLog(Connection& connection, const std::string& name, const LogOptions& options,
                       const LogCallback& on_data);

}  // namespace millrace

#endif  // MILLRACE_CLIENT_LIB_LOGS_H_
