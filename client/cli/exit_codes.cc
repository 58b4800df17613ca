#include "client/cli/exit_codes.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace millrace {
namespace {

struct Row {
  ExitCode code;
  const char* meaning;
};

constexpr Row kTable[] = {
    {kExitOk, "done; with --watch, the job succeeded"},
    {kExitOther, "an error that is none of those below"},
    {kExitUsage, "the command line is wrong"},
    {kExitInvalidInput, "invalid input: job file, dataset, name, address"},
    {kExitNotFound, "no such job, checkpoint, dataset or file"},
    {kExitIllegalState, "not possible in this state, or too little memory"},
    {kExitAlreadyExists, "already exists"},
    {kExitResourceExhausted, "disk, queue or quota is full"},
    {kExitUnreachable, "the daemon cannot be reached, or does not answer"},
    {kExitJobFailed, "the job that was watched failed"},
    {kExitJobCancelled, "the job that was watched was cancelled"},
    {kExitDataLoss, "data is damaged or missing (checksums, events)"},
    {kExitNotPermitted, "not permitted"},
    {kExitInterrupted, "interrupted (Ctrl-C); the job goes on"},
};

}  // namespace

ExitCode ExitCodeFor(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return kExitInvalidInput;
    case absl::StatusCode::kNotFound:
      return kExitNotFound;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAborted:
      return kExitIllegalState;
    case absl::StatusCode::kAlreadyExists:
      return kExitAlreadyExists;
    case absl::StatusCode::kResourceExhausted:
      return kExitResourceExhausted;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return kExitUnreachable;
    case absl::StatusCode::kDataLoss:
      return kExitDataLoss;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return kExitNotPermitted;
    case absl::StatusCode::kCancelled:
      return kExitInterrupted;
    default:
      return kExitOther;
  }
}

ExitCode ExitCodeFor(v1::Job::State ended) {
  switch (ended) {
    case v1::Job::SUCCEEDED:
      return kExitOk;
    case v1::Job::FAILED:
      return kExitJobFailed;
    case v1::Job::CANCELLED:
      return kExitJobCancelled;
    default:
      return kExitOther;
  }
}

std::string ExitCodeTable() {
  std::string text = "Exit codes:\n";
  for (const Row& row : kTable) absl::StrAppendFormat(&text, "  %3d  %s\n", row.code, row.meaning);
  return text;
}

}  // namespace millrace
