// A worker without a daemon: runs a job file in a folder.
//
// Standard output gets one JSON object a step, on a line of its own, with the fields of
// millrace.v1.StepMetrics: step, loss, gradient_norm, learning_rate, tokens, step_seconds,
// tokens_per_second, speed_of_light_ratio, total_tokens. Everything else goes to the log.
#ifndef MILLRACE_SERVER_WORKER_LOCAL_RUN_H_
#define MILLRACE_SERVER_WORKER_LOCAL_RUN_H_

#include <spdlog/logger.h>

#include <string>

#include "engine/train/stop_control.h"
#include "server/worker/exit_codes.h"

namespace millrace {

struct LocalRunOptions {
  // A job file; its data.train is a path of a file or folder.
  std::string spec_path;
  // Where checkpoints go; made when it is not there. A run that was interrupted goes on from the
  // last complete one, with the threads, micro-batch and compute type that it began with.
  std::string folder;
};

// Takes the folder's lock, runs, and returns when the run has ended.
WorkerExitCode RunLocally(const LocalRunOptions& options, StopControl& stop, spdlog::logger& log);

}  // namespace millrace

#endif  // MILLRACE_SERVER_WORKER_LOCAL_RUN_H_
