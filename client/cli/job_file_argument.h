// The job file that a command line names.
#ifndef MILLRACE_CLIENT_CLI_JOB_FILE_ARGUMENT_H_
#define MILLRACE_CLIENT_CLI_JOB_FILE_ARGUMENT_H_

#include <string>

#include "absl/status/statusor.h"
#include "client/cli/session.h"
#include "millrace/v1/job_spec.pb.h"

namespace millrace {

// `file` may be `-`, standard input. Errors have one line a problem, each beginning with the file's
// name.
absl::StatusOr<v1::JobSpec> ReadJobFile(const Session& session, const std::string& file);

}  // namespace millrace

#endif  // MILLRACE_CLIENT_CLI_JOB_FILE_ARGUMENT_H_
