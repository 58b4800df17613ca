// Server streams that break and are taken up again where they ended.
#ifndef MILLRACE_CLIENT_LIB_RESUME_STREAM_H_
#define MILLRACE_CLIENT_LIB_RESUME_STREAM_H_

#include <functional>

#include "absl/status/status.h"
#include "client/lib/connection.h"

namespace millrace {

// Called each time the stream has broken, with the reason: for a person who waits.
using ReconnectCallback = std::function<void(const absl::Status&)>;

// Runs `attempt` until it succeeds, fails for good, or has failed without any progress for
// options().max_stream_unavailable. `attempt` opens the stream where the last one ended and returns
// how it ended; it sets `*progress` when anything new came. Unless the daemon is
// `known_to_be_there`, a stream that never worked fails as fast as a unary call does. OK, CANCELLED
// when stopped, or the error as a person should read it.
absl::Status ResumeStream(
    Connection& connection, const ReconnectCallback& on_reconnect,
    const std::function<absl::Status(grpc::ClientContext*, bool* progress)>& attempt,
    bool known_to_be_there = false);

}  // namespace millrace

#endif  // MILLRACE_CLIENT_LIB_RESUME_STREAM_H_
