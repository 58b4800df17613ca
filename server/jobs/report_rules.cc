#include "server/jobs/report_rules.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/base/errors.h"

namespace millrace {
namespace {

using v1::Job;
using v1::WorkerReport;

// Share of a new step in the smoothed time of a step.
constexpr double kNewStepShare = 0.1;

double ToSeconds(const google::protobuf::Duration& duration) {
  return static_cast<double>(duration.seconds()) + 1e-9 * duration.nanos();
}

// The estimate before tells the smoothed time of a step, so that nothing else has to be kept.
void UpdateRemaining(const v1::StepMetrics& step, v1::JobProgress* progress) {
  const int64_t left = progress->total_steps() - step.step();
  const int64_t left_before = progress->total_steps() - progress->last_step().step();
  double step_seconds = step.step_seconds();
  if (progress->has_remaining() && left_before > 0) {
    const double before = ToSeconds(progress->remaining()) / static_cast<double>(left_before);
    step_seconds = (1 - kNewStepShare) * before + kNewStepShare * step_seconds;
  }
  const double remaining = static_cast<double>(std::max<int64_t>(left, 0)) * step_seconds;
  if (!std::isfinite(remaining) || remaining < 0 || remaining > 1e11) return;
  progress->mutable_remaining()->set_seconds(static_cast<int64_t>(remaining));
  progress->mutable_remaining()->set_nanos(
      static_cast<int32_t>((remaining - std::floor(remaining)) * 1e9));
}

absl::Status ApplyPrepared(JobTransaction& transaction, StoredJob* stored,
                           const WorkerReport::Prepared& prepared) {
  if (prepared.has_resolved_spec()) {
    *stored->job.mutable_spec() = prepared.resolved_spec();
    transaction.MarkChanged(stored);
  }
  if (prepared.has_plan()) {
    *stored->job.mutable_plan() = prepared.plan();
    transaction.MarkChanged(stored);
  }
  if (stored->job.state() != Job::PREPARING) return absl::OkStatus();
  return transaction.Transition(stored, Job::RUNNING, v1::REASON_UNSPECIFIED,
                                prepared.start_step() > 0
                                    ? absl::StrCat("continues after step ", prepared.start_step())
                                    : "");
}

absl::Status ApplyOne(JobTransaction& transaction, StoredJob* stored, StoredAttempt* attempt,
                      const WorkerReport& report) {
  v1::JobEvent event;
  if (report.has_time()) *event.mutable_time() = report.time();
  v1::JobProgress* progress = stored->job.mutable_progress();
  switch (report.report_case()) {
    case WorkerReport::kPrepared:
      return ApplyPrepared(transaction, stored, report.prepared());
    case WorkerReport::kEnded:
      attempt->ended = report.ended();
      return absl::OkStatus();
    case WorkerReport::kStep:
      UpdateRemaining(report.step(), progress);
      *progress->mutable_last_step() = report.step();
      if (report.step().step() > stored->highest_step) {
        stored->highest_step = report.step().step();
        stored->job.set_restarts(0);
      }
      *event.mutable_step() = report.step();
      break;
    case WorkerReport::kEvaluation:
      *progress->mutable_last_evaluation() = report.evaluation();
      *event.mutable_evaluation() = report.evaluation();
      break;
    case WorkerReport::kCheckpoint:
      // Progress that lasts, even where an earlier attempt came further and lost it.
      if (report.checkpoint().step() > progress->last_checkpoint_step()) {
        stored->job.set_restarts(0);
      }
      progress->set_last_checkpoint_step(report.checkpoint().step());
      *event.mutable_checkpoint() = report.checkpoint();
      break;
    case WorkerReport::kSample:
      *event.mutable_sample() = report.sample();
      break;
    case WorkerReport::kMemory:
      *progress->mutable_memory() = report.memory();
      *event.mutable_memory() = report.memory();
      break;
    case WorkerReport::kTrace:
      *event.mutable_trace() = report.trace();
      break;
    case WorkerReport::kHello:
    case WorkerReport::REPORT_NOT_SET:
      // Nothing that lasts. The second is a kind of report that a newer worker knows.
      return absl::OkStatus();
  }
  return transaction.Append(stored, std::move(event));
}

}  // namespace

absl::StatusOr<int64_t> ApplyReports(JobTransaction& transaction, const std::string& job_id,
                                     int32_t attempt_number,
                                     const std::vector<WorkerReport>& reports) {
  MILLRACE_ASSIGN_OR_RETURN(StoredJob * stored, transaction.Get(job_id));
  MILLRACE_ASSIGN_OR_RETURN(std::optional<StoredAttempt> attempt,
                            transaction.FindAttempt(*stored, attempt_number));
  if (!attempt.has_value()) {
    return MakeError(ErrorReason::kAttemptNotFound,
                     absl::StrCat("jobs/", job_id, " has no attempt ", attempt_number));
  }
  if (attempt->over() || attempt_number != stored->job.attempt()) {
    int64_t acknowledge = attempt->last_report;
    for (const WorkerReport& report : reports) {
      acknowledge = std::max(acknowledge, report.sequence());
    }
    return acknowledge;
  }
  const int64_t stored_before = attempt->last_report;
  for (const WorkerReport& report : reports) {
    if (report.sequence() <= attempt->last_report) continue;
    if (report.sequence() != attempt->last_report + 1) {
      return absl::FailedPreconditionError(
          absl::StrCat("jobs/", job_id, " attempt ", attempt_number, ": report ", report.sequence(),
                       " follows report ", attempt->last_report));
    }
    MILLRACE_RETURN_IF_ERROR(ApplyOne(transaction, stored, &*attempt, report));
    attempt->last_report = report.sequence();
  }
  if (attempt->last_report != stored_before) {
    MILLRACE_RETURN_IF_ERROR(transaction.PutAttempt(*stored, *attempt));
  }
  return attempt->last_report;
}

}  // namespace millrace
