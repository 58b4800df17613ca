#include "client/lib/resume_stream.h"

#include "absl/time/clock.h"
#include "client/lib/backoff.h"
#include "client/lib/errors.h"

namespace millrace {
namespace {

// Ways in which a healthy stream ends when its daemon, or the way to it, goes away.
bool IsBroken(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kCancelled:
      return true;
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      // The transport's own, such as RST_STREAM; the daemon gives a reason with its errors.
      return ErrorReason(status).empty();
    default:
      return false;
  }
}

// Failures that are not UNAVAILABLE are not worth ten minutes.
constexpr int kMaxFailures = 5;

}  // namespace

absl::Status ResumeStream(
    Connection& connection, const ReconnectCallback& on_reconnect,
    const std::function<absl::Status(grpc::ClientContext*, bool* progress)>& attempt,
    bool known_to_be_there) {
  const Connection::Options& options = connection.options();
  Backoff backoff(absl::Milliseconds(50), absl::Seconds(2));
  bool worked = known_to_be_there;
  bool told = false;
  int failures = 0;
  absl::Time last_progress = absl::Now();
  for (;;) {
    if (options.stop.stop_requested()) return absl::CancelledError("interrupted");
    grpc::ClientContext context;
    bool progress = false;
    absl::Status status;
    {
      CancelOnStop cancel(options.stop, &context);
      status = attempt(&context, &progress);
    }
    if (status.ok()) return status;
    if (options.stop.stop_requested()) return absl::CancelledError("interrupted");
    if (!IsBroken(status)) return connection.Explain(status);
    if (progress) {
      worked = true;
      told = false;
      failures = 0;
      last_progress = absl::Now();
      backoff.Reset();
    }
    if (status.code() != absl::StatusCode::kUnavailable && ++failures > kMaxFailures) {
      return connection.Explain(status);
    }
    absl::Duration wait = backoff.Next(RetryDelay(status).value_or(absl::ZeroDuration()));
    absl::Duration limit = worked ? options.max_stream_unavailable : options.max_unavailable;
    if (absl::Now() + wait > last_progress + limit) return connection.Explain(status);
    if (worked && !told && on_reconnect) on_reconnect(status);
    told = true;
    if (!WaitUnlessStopped(options.stop, wait)) return absl::CancelledError("interrupted");
  }
}

}  // namespace millrace
