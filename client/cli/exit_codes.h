// How the command ends, for scripts. The one table; `millrace --help` prints it.
#ifndef MILLRACE_CLIENT_CLI_EXIT_CODES_H_
#define MILLRACE_CLIENT_CLI_EXIT_CODES_H_

#include <string>

#include "absl/status/status.h"
#include "millrace/v1/job_service.pb.h"

namespace millrace {

enum ExitCode : int {
  kExitOk = 0,
  kExitOther = 1,
  kExitUsage = 2,
  kExitInvalidInput = 3,
  kExitNotFound = 4,
  kExitIllegalState = 5,
  kExitAlreadyExists = 6,
  kExitResourceExhausted = 7,
  kExitUnreachable = 8,
  kExitJobFailed = 9,
  kExitJobCancelled = 10,
  kExitDataLoss = 11,
  kExitNotPermitted = 12,
  kExitInvalidModel = 13,
  kExitInvalidDataset = 14,
  kExitDatasetNotFound = 15,
  kExitCheckpointNotFound = 16,
  kExitMemoryInsufficient = 17,
  kExitDiskFull = 18,
  kExitUnknownProfile = 19,
  kExitInterrupted = 130,
};

// By the reason that the daemon gave where it has a code of its own, else by the status code.
ExitCode ExitCodeFor(const absl::Status& status);

// For a job that was watched to its end.
ExitCode ExitCodeFor(v1::Job::State ended);

// The table as text, one code a line.
std::string ExitCodeTable();

}  // namespace millrace

#endif  // MILLRACE_CLIENT_CLI_EXIT_CODES_H_
