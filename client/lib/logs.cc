#include "client/lib/logs.h"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "client/lib/errors.h"
#include "client/lib/watch.h"

namespace millrace {
namespace {

// The end of a text that is given in pieces: its last lines, and how long it was.
class Tail {
 public:
  explicit Tail(int lines) : lines_(lines) {}

  void Append(absl::string_view data) {
    bytes_ += static_cast<int64_t>(data.size());
    kept_.append(data.data(), data.size());
    // Now and then is enough.
    if (kept_.size() > 2 * trimmed_size_ + (1 << 16)) Trim();
  }

  const std::string& Lines() {
    Trim();
    return kept_;
  }
  int64_t bytes() const { return bytes_; }

 private:
  void Trim() {
    int seen = 0;
    size_t begin = kept_.size();
    // A newline at the very end closes the last line and begins none.
    if (begin > 0 && kept_[begin - 1] == '\n') --begin;
    while (begin > 0 && (kept_[begin - 1] != '\n' || ++seen < lines_)) --begin;
    kept_.erase(0, begin);
    trimmed_size_ = kept_.size();
  }

  int lines_;
  int64_t bytes_ = 0;
  std::string kept_;
  size_t trimmed_size_ = 0;
};

// One attempt's log from `*offset` on; `*offset` grows with what came.
absl::Status ReadAttempt(Connection& connection, const std::string& name, int attempt, bool follow,
                         const ReconnectCallback& on_reconnect, int64_t* offset,
                         const LogCallback& on_data) {
  return ResumeStream(connection, on_reconnect,
                      [&](grpc::ClientContext* context, bool* progress) -> absl::Status {
                        v1::ReadLogsRequest request;
                        request.set_name(name);
                        request.set_attempt(attempt);
                        request.set_follow(follow);
                        auto stream = connection.jobs().ReadLogs(context, request);
                        v1::ReadLogsResponse response;
                        // The log begins again with each stream; what was seen is passed over.
                        int64_t position = 0;
                        while (stream->Read(&response)) {
                          *progress = true;
                          int64_t size = static_cast<int64_t>(response.data().size());
                          int64_t known = std::clamp<int64_t>(*offset - position, 0, size);
                          position += size;
                          if (known == size) continue;
                          *offset += size - known;
                          on_data(absl::string_view(response.data()).substr(known));
                        }
                        return StatusFromGrpc(stream->Finish());
                      });
}

absl::Status ReadTail(Connection& connection, const std::string& name, int attempt,
                      const LogOptions& options, const LogCallback& on_data) {
  std::string tail;
  absl::Status status =
      ResumeStream(connection, options.on_reconnect,
                   [&](grpc::ClientContext* context, bool* progress) -> absl::Status {
                     v1::ReadLogsRequest request;
                     request.set_name(name);
                     request.set_attempt(attempt);
                     request.set_tail_lines(options.tail_lines);
                     auto stream = connection.jobs().ReadLogs(context, request);
                     v1::ReadLogsResponse response;
                     tail.clear();
                     while (stream->Read(&response)) {
                       *progress = true;
                       tail += response.data();
                     }
                     return StatusFromGrpc(stream->Finish());
                   });
  if (status.ok()) on_data(tail);
  return status;
}

// The job, also when the daemon is just being restarted.
absl::StatusOr<v1::Job> GetJobPatiently(Connection& connection, const std::string& name,
                                        const ReconnectCallback& on_reconnect) {
  absl::StatusOr<v1::Job> job;
  absl::Status status = ResumeStream(
      connection, on_reconnect,
      [&](grpc::ClientContext*, bool*) {
        job = connection.GetJob(name);
        return job.status();
      },
      /*known_to_be_there=*/true);
  if (!status.ok()) return status;
  return job;
}

// Waits until an attempt after `attempt` has begun; 0 when the job ends without one.
absl::StatusOr<int> NextAttempt(Connection& connection, const std::string& name, int attempt,
                                const ReconnectCallback& on_reconnect) {
  absl::StatusOr<v1::Job> job = GetJobPatiently(connection, name, on_reconnect);
  if (!job.ok()) return job.status();
  if (job->attempt() <= attempt && !HasEnded(job->state())) {
    WatchOptions watch;
    watch.after_sequence = job->last_sequence();
    watch.on_reconnect = on_reconnect;
    job = WatchJob(connection, name, watch,
                   [&](const v1::JobEvent& event) { return event.attempt() <= attempt; });
    if (!job.ok()) return job.status();
  }
  return job->attempt() > attempt ? attempt + 1 : 0;
}

absl::StatusOr<int> NewestAttempt(Connection& connection, const std::string& name, bool wait,
                                  const ReconnectCallback& on_reconnect) {
  absl::StatusOr<v1::Job> job = connection.GetJob(name);
  if (!job.ok()) return job.status();
  if (job->attempt() > 0 || !wait) return job->attempt();
  return NextAttempt(connection, name, 0, on_reconnect);
}

}  // namespace

absl::Status ReadLog(Connection& connection, const std::string& name, const LogOptions& options,
                     const LogCallback& on_data) {
  int attempt = options.attempt;
  if (attempt == 0) {
    absl::StatusOr<int> newest = NewestAttempt(connection, name, /*wait=*/false, nullptr);
    if (!newest.ok()) return newest.status();
    if (*newest == 0) return absl::OkStatus();
    attempt = *newest;
  }
  if (options.tail_lines > 0) return ReadTail(connection, name, attempt, options, on_data);
  int64_t offset = 0;
  return ReadAttempt(connection, name, attempt, /*follow=*/false, options.on_reconnect, &offset,
                     on_data);
}

absl::Status FollowLog(Connection& connection, const std::string& name, const LogOptions& options,
                       const LogCallback& on_data) {
  int attempt = options.attempt;
  if (attempt == 0) {
    absl::StatusOr<int> newest =
        NewestAttempt(connection, name, /*wait=*/true, options.on_reconnect);
    if (!newest.ok()) return newest.status();
    attempt = *newest;
  }
  int tail_lines = options.tail_lines;
  while (attempt > 0) {
    if (options.on_attempt) options.on_attempt(attempt);
    int64_t offset = 0;
    if (tail_lines > 0) {
      // The server could cut the tail itself, but then a broken stream could not be taken up again:
      // nobody would know at which byte the tail began.
      Tail tail(tail_lines);
      absl::Status status =
          ReadAttempt(connection, name, attempt, /*follow=*/false, options.on_reconnect, &offset,
                      [&](absl::string_view data) { tail.Append(data); });
      if (!status.ok()) return status;
      on_data(tail.Lines());
      tail_lines = 0;
    }
    absl::Status status = ReadAttempt(connection, name, attempt, /*follow=*/true,
                                      options.on_reconnect, &offset, on_data);
    if (!status.ok() || options.attempt != 0) return status;
    absl::StatusOr<int> next = NextAttempt(connection, name, attempt, options.on_reconnect);
    if (!next.ok()) return next.status();
    attempt = *next;
  }
  return absl::OkStatus();
}

}  // namespace millrace
