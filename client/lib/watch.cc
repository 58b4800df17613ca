#include "client/lib/watch.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "client/lib/errors.h"

namespace millrace {

bool HasEnded(v1::Job::State state) {
  return state == v1::Job::SUCCEEDED || state == v1::Job::FAILED || state == v1::Job::CANCELLED;
}

absl::StatusOr<v1::Job> WatchJob(Connection& connection, const std::string& name,
                                 const WatchOptions& options,
                                 const std::function<bool(const v1::JobEvent&)>& on_event) {
  int64_t last_sequence = options.after_sequence;
  v1::Job job;
  absl::Status status =
      ResumeStream(connection, options.on_reconnect,
                   [&](grpc::ClientContext* context, bool* progress) -> absl::Status {
                     v1::WatchJobRequest request;
                     request.set_name(name);
                     request.set_after_sequence(last_sequence);
                     auto stream = connection.jobs().WatchJob(context, request);
                     v1::JobEvent event;
                     while (stream->Read(&event)) {
                       *progress = true;
                       if (event.sequence() <= last_sequence) continue;
                       if (event.sequence() != last_sequence + 1) {
                         context->TryCancel();
                         stream->Finish();
                         return absl::DataLossError(
                             absl::StrCat("the events of ", name, " after number ", last_sequence,
                                          " are missing: the next is ", event.sequence()));
                       }
                       last_sequence = event.sequence();
                       if (!on_event(event)) {
                         context->TryCancel();
                         stream->Finish();
                         absl::StatusOr<v1::Job> now = connection.GetJob(name);
                         if (!now.ok()) return now.status();
                         job = *std::move(now);
                         return absl::OkStatus();
                       }
                     }
                     absl::Status end = StatusFromGrpc(stream->Finish());
                     if (!end.ok()) return end;
                     // A daemon that is being stopped may end a stream in good order.
                     absl::StatusOr<v1::Job> now = connection.GetJob(name);
                     if (!now.ok()) return now.status();
                     if (!HasEnded(now->state()) || now->last_sequence() > last_sequence) {
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
