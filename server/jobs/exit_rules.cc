#include "server/jobs/exit_rules.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/status_macros.h"

namespace millrace {
namespace {

using v1::Job;
using Ended = v1::WorkerReport::Ended;

std::string WhereItContinues(const StoredJob& stored) {
  const int64_t step = stored.job.progress().last_checkpoint_step();
  return step > 0 ? absl::StrCat("continues from the checkpoint of step ", step)
                  : "starts from the beginning, for there is no checkpoint yet";
}

absl::Status AfterCrash(JobTransaction& transaction, StoredJob* stored,
                        const StoredAttempt& attempt, const WorkerExit& exit, int max_restarts) {
  if (attempt.stop_trigger == "SHUTDOWN") {
    return transaction.Transition(stored, Job::QUEUED, v1::REASON_SHUTDOWN,
                                  WhereItContinues(*stored));
  }
  if (!exit.counts_as_crash) {
    return transaction.Transition(stored, Job::QUEUED, exit.reason,
                                  absl::StrCat("the worker ended unexpectedly (", exit.description,
                                               "); ", WhereItContinues(*stored)));
  }
  const int restarts = stored->job.restarts();
  if (restarts >= max_restarts) {
    return transaction.Transition(
        stored, Job::FAILED, exit.reason,
        absl::StrCat("the worker ended unexpectedly (", exit.description, "), ", restarts + 1,
                     " times without a step of progress between; its log tells more"));
  }
  stored->job.set_restarts(restarts + 1);
  return transaction.Transition(
      stored, Job::QUEUED, exit.reason,
      absl::StrCat("the worker ended unexpectedly (", exit.description, "); restart ", restarts + 1,
                   " of at most ", max_restarts, ", ", WhereItContinues(*stored)));
}

// SUCCEEDED and FAILED are the same from every state that had a worker.
absl::Status AfterEnd(JobTransaction& transaction, StoredJob* stored, const Ended& ended) {
  if (ended.outcome() == Ended::FAILED) {
    return transaction.Transition(
        stored, Job::FAILED,
        ended.reason() == v1::REASON_UNSPECIFIED ? v1::REASON_INTERNAL : ended.reason(),
        ended.message());
  }
  if (stored->job.state() == Job::PREPARING) {
    MILLRACE_RETURN_IF_ERROR(
        transaction.Transition(stored, Job::RUNNING, v1::REASON_UNSPECIFIED, ""));
  }
  return transaction.Transition(stored, Job::SUCCEEDED, ended.reason(), ended.message());
}

// The attempt ends now; null when it has ended before or never was.
absl::StatusOr<StoredJob*> EndAttempt(JobTransaction& transaction, const std::string& job_id,
                                      int32_t attempt_number, const std::string& exit,
                                      StoredAttempt* ended_attempt) {
  MILLRACE_ASSIGN_OR_RETURN(StoredJob * stored, transaction.Find(job_id));
  if (stored == nullptr || attempt_number != stored->job.attempt()) return nullptr;
  MILLRACE_ASSIGN_OR_RETURN(std::optional<StoredAttempt> attempt,
                            transaction.FindAttempt(*stored, attempt_number));
  if (!attempt.has_value() || attempt->over()) return nullptr;
  attempt->end_time = absl::Now();
  attempt->exit = exit;
  MILLRACE_RETURN_IF_ERROR(transaction.PutAttempt(*stored, *attempt));
  *ended_attempt = *std::move(attempt);
  return stored;
}

}  // namespace

absl::Status ApplyExit(JobTransaction& transaction, const std::string& job_id,
                       int32_t attempt_number, const WorkerExit& exit, int max_restarts) {
  StoredAttempt attempt;
  MILLRACE_ASSIGN_OR_RETURN(StoredJob * stored, EndAttempt(transaction, job_id, attempt_number,
                                                           exit.description, &attempt));
  if (stored == nullptr) return absl::OkStatus();

  const Ended& ended = attempt.ended;
  const Job::State state = stored->job.state();
  if (state == Job::CANCELLING) {
    return transaction.Transition(stored, Job::CANCELLED, v1::REASON_USER, "");
  }
  if (ended.outcome() == Ended::SUCCEEDED || ended.outcome() == Ended::FAILED) {
    return AfterEnd(transaction, stored, ended);
  }
  if (state == Job::PAUSING) {
    if (ended.outcome() == Ended::STOPPED) {
      return transaction.Transition(stored, Job::PAUSED, v1::REASON_USER,
                                    absl::StrCat("paused after step ", ended.step()));
    }
    return transaction.Transition(
        stored, Job::PAUSED, exit.reason,
        absl::StrCat("the worker ended before it had saved (", exit.description,
                     "); once resumed, ", WhereItContinues(*stored)));
  }
  if (ended.outcome() == Ended::STOPPED) {
    return transaction.Transition(stored, Job::QUEUED, v1::REASON_SHUTDOWN,
                                  absl::StrCat("stopped after step ", ended.step()));
  }
  return AfterCrash(transaction, stored, attempt, exit, max_restarts);
}

absl::Status ApplyStartFailure(JobTransaction& transaction, const std::string& job_id,
                               int32_t attempt_number, const absl::Status& error) {
  const std::string message(error.message());
  StoredAttempt attempt;
  MILLRACE_ASSIGN_OR_RETURN(StoredJob * stored,
                            EndAttempt(transaction, job_id, attempt_number, message, &attempt));
  if (stored == nullptr) return absl::OkStatus();
  switch (stored->job.state()) {
    case Job::CANCELLING:
      return transaction.Transition(stored, Job::CANCELLED, v1::REASON_USER, "");
    case Job::PAUSING:
      return transaction.Transition(stored, Job::PAUSED, v1::REASON_USER, message);
    default:
      if (absl::IsUnavailable(error)) {
        return transaction.Transition(
            stored, Job::QUEUED, v1::REASON_UNSPECIFIED,
            absl::StrCat("the worker cannot be started for now: ", message));
      }
      return transaction.Transition(
          stored, Job::FAILED,
          absl::IsResourceExhausted(error) ? v1::REASON_DISK_FULL : v1::REASON_INTERNAL,
          absl::StrCat("the worker could not be started: ", message));
  }
}

}  // namespace millrace
