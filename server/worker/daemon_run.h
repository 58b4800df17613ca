// A worker under a daemon: runs one attempt of a job and reports over WorkerService.
#ifndef MILLRACE_SERVER_WORKER_DAEMON_RUN_H_
#define MILLRACE_SERVER_WORKER_DAEMON_RUN_H_

#include <spdlog/logger.h>

#include <string>

#include "absl/time/time.h"
#include "engine/train/stop_control.h"
#include "server/worker/exit_codes.h"

namespace millrace {

struct DaemonRunOptions {
  // DataPaths::Job of the job; its last part is the job's id. attempts/{attempt}/job.yaml is there.
  std::string job_dir;
  // The daemon's data folder, in which `datasets/{id}` is found.
  std::string data_dir;
  std::string socket;
  int attempt = 0;
  // How long to wait at the end for the daemon to acknowledge; what it did not is left in
  // unsent.pb.
  absl::Duration acknowledge_patience = absl::Minutes(1);
};

// Returns when the run has ended and the daemon knows, or the reports are on disk. The caller holds
// the job's lock.
WorkerExitCode RunUnderDaemon(const DaemonRunOptions& options, StopControl& stop,
                              spdlog::logger& log);

}  // namespace millrace

#endif  // MILLRACE_SERVER_WORKER_DAEMON_RUN_H_
