// The worker's end of WorkerService: delivers reports, takes commands, and comes back whenever the
// stream breaks. Runs on threads of its own.
//
//   ReportBuffer reports;
//   DaemonLink link({.socket = …, .job_id = …, .attempt = 1}, &reports, on_command);
//   reports.Add(…);
#ifndef MILLRACE_SERVER_WORKER_DAEMON_LINK_H_
#define MILLRACE_SERVER_WORKER_DAEMON_LINK_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/client_context.h"
#include "millrace/v1/worker.pb.h"
#include "server/worker/report_buffer.h"

namespace millrace {

class DaemonLink {
 public:
  struct Options {
    // Path of the daemon's Unix socket.
    std::string socket;
    std::string job_id;
    int attempt = 0;
    // Before the first try after a stream broke; doubles up to the longest.
    absl::Duration first_backoff = absl::Milliseconds(20);
    absl::Duration longest_backoff = absl::Seconds(1);
  };

  // `on_command` gets Stop and Cancel, on a thread of the link, and must not block.
  DaemonLink(Options options, ReportBuffer* reports,
             std::function<void(const v1::WorkerCommand&)> on_command);
  // Breaks the stream; reports not acknowledged stay in the buffer.
  ~DaemonLink();

 private:
  void Run();
  // One stream, from Hello until it breaks. Whether the daemon said anything.
  bool RunStream(grpc::ClientContext& context);

  const Options options_;
  ReportBuffer* const reports_;
  const std::function<void(const v1::WorkerCommand&)> on_command_;
  absl::Mutex mutex_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* current_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::thread thread_;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_WORKER_DAEMON_LINK_H_
