// {attempt folder}/unsent.pb: the reports that a worker could not deliver when it ended, so that
// the next daemon learns of its end and misses no step. A sequence of length-delimited
// millrace.v1.WorkerReport; whole or absent.
#ifndef MILLRACE_SERVER_WORKER_UNSENT_REPORTS_H_
#define MILLRACE_SERVER_WORKER_UNSENT_REPORTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "millrace/v1/worker.pb.h"

namespace millrace {

absl::Status WriteUnsentReports(const std::string& attempt_folder,
                                const std::vector<v1::WorkerReport>& reports);

// Empty when there is no such file; DATA_LOSS when it is damaged.
absl::StatusOr<std::vector<v1::WorkerReport>> ReadUnsentReports(const std::string& attempt_folder);

// After all were delivered. Nothing to remove is fine.
absl::Status RemoveUnsentReports(const std::string& attempt_folder);

}  // namespace millrace

#endif  // MILLRACE_SERVER_WORKER_UNSENT_REPORTS_H_
