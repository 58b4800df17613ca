// What a worker's reports do to its job.
//
// | report     | effect on the job                                                          |
// | ---------- | -------------------------------------------------------------------------- |
// | Prepared   | takes over resolved spec and plan; PREPARING becomes RUNNING, others stay  |
// | step       | an event; progress; a step beyond all before clears the count of restarts  |
// | checkpoint | an event; progress; one beyond the last clears the count of restarts       |
// | evaluation, sample, memory | an event; progress                                         |
// | trace      | an event                                                                   |
// | Ended      | kept with the attempt; counts once the process is gone (exit_rules.h)      |
//
// So a late report never overwrites PAUSING or CANCELLING. Reports of an attempt that is over are
// dropped.
#ifndef MILLRACE_SERVER_JOBS_REPORT_RULES_H_
#define MILLRACE_SERVER_JOBS_REPORT_RULES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "millrace/v1/worker.pb.h"
#include "server/jobs/job_transaction.h"

namespace millrace {

// The sequence to acknowledge. See WorkerReportSink::ApplyReports for what is skipped and refused.
absl::StatusOr<int64_t> ApplyReports(JobTransaction& transaction, const std::string& job_id,
                                     int32_t attempt, const std::vector<v1::WorkerReport>& reports);

}  // namespace millrace

#endif  // MILLRACE_SERVER_JOBS_REPORT_RULES_H_
