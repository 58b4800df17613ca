// What becomes of a job when its worker is gone.
//
// | state       | last Ended report | next state                                                |
// | ----------- | ----------------- | --------------------------------------------------------- |
// | CANCELLING  | any or none       | CANCELLED, reason USER                                    |
// | PAUSING     | SUCCEEDED, FAILED | that                                                      |
// | PAUSING     | any other or none | PAUSED; reason CRASH when it was none                     |
// | the others  | SUCCEEDED, FAILED | that                                                      |
// | the others  | STOPPED           | QUEUED, reason SHUTDOWN                                   |
// | the others  | any other or none | QUEUED, reason CRASH, or FAILED after too many in a row;  |
// |             |                   | QUEUED, reason SHUTDOWN, if the daemon had asked it to end |
//
// A worker that was gone when the daemon started (WorkerExit::counts_as_crash) adds nothing to the
// count of crashes in a row.
//
// A job that is queued again this way keeps its place before all that were submitted later, and
// starts from its last complete checkpoint.
#ifndef MILLRACE_SERVER_JOBS_EXIT_RULES_H_
#define MILLRACE_SERVER_JOBS_EXIT_RULES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "server/jobs/job_transaction.h"
#include "server/jobs/worker_launcher.h"

namespace millrace {

// No effect for an attempt that is unknown, over, or not the job's newest. `max_restarts` is
// JobManager::Options::max_restarts.
absl::Status ApplyExit(JobTransaction& transaction, const std::string& job_id, int32_t attempt,
                       const WorkerExit& exit, int max_restarts);

// The worker of the newest attempt could not be started: FAILED, reason INTERNAL; QUEUED again when
// the error is UNAVAILABLE; or CANCELLED or PAUSED where that was asked for meanwhile.
absl::Status ApplyStartFailure(JobTransaction& transaction, const std::string& job_id,
                               int32_t attempt, const absl::Status& error);

}  // namespace millrace

#endif  // MILLRACE_SERVER_JOBS_EXIT_RULES_H_
