#include "client/lib/watch.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "client/lib/errors.h"

namespace millrace {

namespace {

// One stream, from after `*last_sequence` until it ends or `on_event` returns false.
absl::Status ReadEvents(Connection& connection, grpc::ClientContext* context,
                        const std::string& name, int64_t* last_sequence, bool* progress,
                        const std::function<bool(const v1::JobEvent&)>& on_event) {
  v1::WatchJobRequest request;
  request.set_name(name);
  request.set_after_sequence(*last_sequence);
  auto stream = connection.jobs().WatchJob(context, request);
  absl::Status status;
  bool more = true;
  v1::JobEvent event;
  while (more && status.ok() && stream->Read(&event)) {
    *progress = true;
    if (event.sequence() <= *last_sequence) continue;
    if (event.sequence() != *last_sequence + 1) {
      status =
          absl::DataLossError(absl::StrCat("the events of ", name, " after number ", *last_sequence,
                                           " are missing: the next is ", event.sequence()));
      break;
    }
    *last_sequence = event.sequence();
    more = on_event(event);
  }
  if (!more || !status.ok()) {
    context->TryCancel();
    stream->Finish();
    return status;
  }
  return StatusFromGrpc(stream->Finish());
}

}  // namespace

bool HasEnded(v1::Job::State state) {
  return state == v1::Job::SUCCEEDED || state == v1::Job::FAILED || state == v1::Job::CANCELLED;
}

absl::StatusOr<v1::Job> WatchJob(Connection& connection, const std::string& name,
                                 const WatchOptions& options,
                                 const std::function<bool(const v1::JobEvent&)>& on_event) {
  int64_t last_sequence = options.after_sequence;
  v1::Job job;
  bool enough = false;
  absl::Status status = ResumeStream(
      connection, options.on_reconnect,
      [&](grpc::ClientContext* context, bool* progress) -> absl::Status {
        if (!enough) {
          absl::Status end = ReadEvents(connection, context, name, &last_sequence, progress,
                                        [&](const v1::JobEvent& event) {
                                          enough = !on_event(event);
                                          return !enough;
                                        });
          if (!end.ok()) return end;
        }
        absl::StatusOr<v1::Job> now = connection.GetJob(name);
        if (!now.ok()) return now.status();
        // A daemon that is being stopped may end a stream in good order.
        if (!enough && (!HasEnded(now->state()) || now->last_sequence() > last_sequence)) {
          *progress = true;
          return absl::AbortedError("the stream ended before the job");
        }
        job = *std::move(now);
        return absl::OkStatus();
      });
  if (!status.ok()) return status;
  return job;
}

}  // namespace millrace
