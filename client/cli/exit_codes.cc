#include "client/cli/exit_codes.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/lib/errors.h"

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
    {kExitInvalidInput, "invalid input: job file, name, address"},
    {kExitNotFound, "no such job, attempt or file"},
    {kExitIllegalState, "not possible in this state"},
    {kExitAlreadyExists, "already exists"},
    {kExitResourceExhausted, "the queue or a limit is full"},
    {kExitUnreachable, "the daemon cannot be reached, or does not answer"},
    {kExitJobFailed, "the job that was watched failed"},
    {kExitJobCancelled, "the job that was watched was cancelled"},
    {kExitDataLoss, "data is damaged or missing (checksums, events)"},
    {kExitNotPermitted, "not permitted"},
    {kExitInvalidModel, "a model that cannot be built, or is not supported"},
    {kExitInvalidDataset, "a dataset that cannot be used: empty, binary, malformed, too short"},
    {kExitDatasetNotFound, "no such dataset"},
    {kExitCheckpointNotFound, "no such checkpoint"},
    {kExitMemoryInsufficient, "a job that does not fit the memory or its budget"},
    {kExitDiskFull, "a disk is full"},
    {kExitUnknownProfile, "no such device profile"},
    {kExitInterrupted, "interrupted (Ctrl-C); the job goes on"},
};

// Reasons (google.rpc.ErrorInfo) that have a code of their own.
struct ReasonRow {
  const char* reason;
  ExitCode code;
};

constexpr ReasonRow kReasons[] = {
    {"MODEL_INVALID", kExitInvalidModel},
    {"MODEL_UNSUPPORTED", kExitInvalidModel},
    {"BUSY", kExitResourceExhausted},
    {"DATASET_INVALID", kExitInvalidDataset},
    {"DATASET_NOT_FOUND", kExitDatasetNotFound},
    {"CHECKPOINT_NOT_FOUND", kExitCheckpointNotFound},
    {"DEVICE_MEMORY_INSUFFICIENT", kExitMemoryInsufficient},
    {"HOST_MEMORY_INSUFFICIENT", kExitMemoryInsufficient},
    {"DISK_FULL", kExitDiskFull},
    {"PROFILE_UNKNOWN", kExitUnknownProfile},
};

}  // namespace

ExitCode ExitCodeFor(const absl::Status& status) {
  const std::string reason = ErrorReason(status);
  for (const ReasonRow& row : kReasons) {
    if (reason == row.reason) return row.code;
  }
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
