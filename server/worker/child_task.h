// Work that the daemon gives to a process of its own, the worker program, so that neither its
// memory nor its end is the daemon's: `millrace-worker export …`, `millrace-worker
// train-tokenizer …` (worker_tasks.h).
//
//   MILLRACE_ASSIGN_OR_RETURN(nlohmann::json result, RunChildTask({.command = {…}}));
//
// The process writes JSON objects to its standard output, one a line:
//   {"progress": {…}}                      any number of times
//   {"result": {…}}                        at its end, or else
//   {"error": {"code": 3, "message": "…"}} with the number of an absl::StatusCode
#ifndef MILLRACE_SERVER_WORKER_CHILD_TASK_H_
#define MILLRACE_SERVER_WORKER_CHILD_TASK_H_

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace millrace {

struct ChildTask {
  // Program and arguments.
  std::vector<std::string> command;
  // What the process tells of its progress.
  std::function<void(const nlohmann::json& progress)> on_progress;
  // Asked a few times a second; true ends the process, and the task with CANCELLED.
  std::function<bool()> cancelled;
};

// Starts the process and waits for its end. Its result; or its error; INTERNAL with the last it
// wrote to standard error when it ended without either.
absl::StatusOr<nlohmann::json> RunChildTask(const ChildTask& task);

}  // namespace millrace

#endif  // MILLRACE_SERVER_WORKER_CHILD_TASK_H_
