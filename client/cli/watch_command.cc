#include "absl/strings/str_cat.h"
#include "client/cli/exit_codes.h"
#include "client/cli/human.h"
#include "client/cli/job_commands.h"
#include "client/cli/watch_view.h"
#include "client/lib/logs.h"
#include "client/lib/watch.h"

namespace millrace {

absl::StatusOr<int> Watch(const Session& session, const WatchArgs& args) {
  std::string name = ResourceName("jobs", args.job);
  absl::StatusOr<v1::Job> job = session.connection->GetJob(name);
  if (!job.ok()) return job.status();

  WatchView view(session, *job);
  WatchOptions options;
  options.after_sequence = args.after_sequence;
  options.on_reconnect = [&](const absl::Status&) { view.OnReconnect(); };
  job = WatchJob(*session.connection, name, options, [&](const v1::JobEvent& event) {
    if (!session.Print(event)) view.OnEvent(event);
    return true;
  });
  if (absl::IsCancelled(job.status())) {
    view.Clear();
    std::string id = ResourceId(name);
    session.Note(absl::StrCat("stopped watching; ", name,
                              " goes on (watch it again: millrace watch ", id,
                              ", end it: millrace cancel ", id, ")"));
    return kExitInterrupted;
  }
  if (!job.ok()) return job.status();
  if (session.format == OutputFormat::kTable) view.Finish(*job);
  return ExitCodeFor(job->state());
}

absl::StatusOr<int> Logs(const Session& session, const LogsArgs& args) {
  LogOptions options;
  options.attempt = args.attempt;
  options.tail_lines = args.tail_lines;
  options.on_reconnect = [&](const absl::Status&) {
    session.Note("the connection to the daemon broke; trying again");
  };
  int attempt = 0;
  options.on_attempt = [&](int next) {
    if (attempt != 0) session.Note(absl::StrCat("attempt ", next, ":"));
    attempt = next;
  };
  std::string name = ResourceName("jobs", args.job);
  auto on_data = [&](absl::string_view data) {
    if (session.format == OutputFormat::kJson) {
      v1::ReadLogsResponse response;
      response.set_data(std::string(data));
      response.set_attempt(attempt);
      session.Print(response);
    } else if (session.terminal().interactive) {
      session.out() << Sanitize(data, /*keep_lines=*/true) << std::flush;
    } else {
      session.out().write(data.data(), static_cast<std::streamsize>(data.size())).flush();
    }
  };
  absl::Status status = args.follow ? FollowLog(*session.connection, name, options, on_data)
                                    : ReadLog(*session.connection, name, options, on_data);
  if (absl::IsCancelled(status)) return kExitInterrupted;
  if (!status.ok()) return status;
  return 0;
}

}  // namespace millrace
