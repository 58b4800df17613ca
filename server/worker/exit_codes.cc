#include "server/worker/exit_codes.h"

#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

constexpr WorkerExitCodeRow kRows[] = {
    {WorkerExitCode::kDone, v1::REASON_UNSPECIFIED, "all steps done"},
    {WorkerExitCode::kError, v1::REASON_INTERNAL, "an error that none of the others names"},
    {WorkerExitCode::kUsage, v1::REASON_INTERNAL, "wrong flags"},
    {WorkerExitCode::kInvalid, v1::REASON_INVALID,
     "the job, its model, its data or its memory budget is unusable"},
    {WorkerExitCode::kStopped, v1::REASON_UNSPECIFIED, "asked to stop; a checkpoint is complete"},
    {WorkerExitCode::kNonFiniteLoss, v1::REASON_NON_FINITE_LOSS, "the loss is no longer a number"},
    {WorkerExitCode::kDiskFull, v1::REASON_DISK_FULL, "the disk is full"},
    {WorkerExitCode::kOutOfMemory, v1::REASON_OUT_OF_MEMORY,
     "memory ran out, or the job takes more than is free"},
    {WorkerExitCode::kCancelled, v1::REASON_USER, "asked to cancel; no checkpoint was written"},
};

}  // namespace

absl::Span<const WorkerExitCodeRow> WorkerExitCodes() { return kRows; }

const WorkerExitCodeRow* FindWorkerExitCode(int code) {
  for (const WorkerExitCodeRow& row : kRows) {
    if (static_cast<int>(row.code) == code) return &row;
  }
  return nullptr;
}

WorkerExitCode WorkerExitCodeOf(v1::Reason reason) {
  if (reason == v1::REASON_INTERNAL) return WorkerExitCode::kError;
  for (const WorkerExitCodeRow& row : kRows) {
    if (row.reason == reason) return row.code;
  }
  return WorkerExitCode::kError;
}

std::string WorkerExitCodeHelp() {
  std::string text = "Exit codes:\n";
  for (const WorkerExitCodeRow& row : kRows) {
    absl::StrAppend(&text, "  ", static_cast<int>(row.code), "  ", row.meaning, "\n");
  }
  return text;
}

}  // namespace millrace
