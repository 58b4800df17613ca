// How millrace-worker tells by its exit code why it ended. One table; --help prints it, and the
// daemon reads it when a worker left no other word.
#ifndef MILLRACE_SERVER_WORKER_EXIT_CODES_H_
#define MILLRACE_SERVER_WORKER_EXIT_CODES_H_

#include <string>

#include "absl/types/span.h"
#include "millrace/v1/training.pb.h"

namespace millrace {

enum class WorkerExitCode : int {
  kDone = 0,
  kError = 1,
  kUsage = 2,
  kInvalid = 3,
  kStopped = 4,
  kNonFiniteLoss = 5,
  kDiskFull = 6,
  kOutOfMemory = 7,
  kCancelled = 8,
};

struct WorkerExitCodeRow {
  WorkerExitCode code;
  // Why a job ends with it; unspecified where the job did not fail.
  v1::Reason reason;
  // For a person.
  const char* meaning;
};

absl::Span<const WorkerExitCodeRow> WorkerExitCodes();

// Null for a code that is none of ours.
const WorkerExitCodeRow* FindWorkerExitCode(int code);

// The code for a failure of this reason; kError where none is more telling.
WorkerExitCode WorkerExitCodeOf(v1::Reason reason);

// The table as lines of text, for --help.
std::string WorkerExitCodeHelp();

}  // namespace millrace

#endif  // MILLRACE_SERVER_WORKER_EXIT_CODES_H_
