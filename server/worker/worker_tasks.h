// What the worker program does for the daemon besides running jobs (child_task.h says how it
// answers):
//
//   millrace-worker export --checkpoint DIR --type BF16 --name NAME --out FILE
//   millrace-worker train-tokenizer --dataset DIR --vocab-size N --out DIR
#ifndef MILLRACE_SERVER_WORKER_WORKER_TASKS_H_
#define MILLRACE_SERVER_WORKER_WORKER_TASKS_H_

#include <string>

#include "absl/strings/string_view.h"

namespace millrace {

// Whether `word`, the first argument of the program, is one of these tasks.
bool IsWorkerTask(absl::string_view word);

// Runs the task that argv[1] names. The exit code.
int RunWorkerTask(int argc, char** argv);

}  // namespace millrace

#endif  // MILLRACE_SERVER_WORKER_WORKER_TASKS_H_
