// The part of JobManager that runs workers: when one starts, stops, and is gone.
#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "engine/base/status_macros.h"
#include "server/jobs/exit_rules.h"
#include "server/jobs/job_folders.h"
#include "server/jobs/job_manager.h"
#include "server/jobs/state_machine.h"

namespace millrace {
namespace {

using v1::Job;

// A change that could not be stored (a full disk) is tried again after this long.
constexpr absl::Duration kRetryDelay = absl::Seconds(1);

}  // namespace

void JobManager::WakeScheduler() {
  absl::MutexLock lock(&mutex_);
  schedule_wanted_ = true;
}

void JobManager::ScheduleLoop() {
  while (true) {
    std::vector<UnstoredExit> unstored;
    std::vector<std::string> ended;
    {
      absl::MutexLock lock(&mutex_);
      const auto is_wanted = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return schedule_wanted_ || stopping_;
      };
      mutex_.AwaitWithDeadline(absl::Condition(&is_wanted), retry_time_);
      if (stopping_) return;
      schedule_wanted_ = false;
      ended.swap(ended_jobs_);
      if (absl::Now() >= retry_time_) {
        retry_time_ = absl::InfiniteFuture();
        unstored.swap(unstored_exits_);
      }
    }
    for (const UnstoredExit& exit : unstored) WorkerExited(exit.job_id, exit.attempt, exit.exit);
    RemovePreparedOf(ended);
    if (!StartQueuedJobs().ok()) {
      absl::MutexLock lock(&mutex_);
      retry_time_ = absl::Now() + kRetryDelay;
    }
  }
}

void JobManager::RemovePreparedOf(const std::vector<std::string>& ended_jobs) {
  for (const std::string& id : ended_jobs) {
    // Resumed meanwhile it may need it; no worker can start before this thread starts it.
    const absl::StatusOr<StoredJob> stored = store_->GetJob(id);
    if (!stored.ok() || !HasEnded(stored->job.state())) continue;
    // What cannot be removed goes with the job.
    RemovePrepared(options_.paths, id).IgnoreError();
  }
}

void JobManager::RetrySoonLocked() {
  retry_time_ = absl::Now() + kRetryDelay;
  // The loop waits with the deadline before.
  schedule_wanted_ = true;
}

absl::Status JobManager::StartQueuedJobs() {
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      if (draining_ || stopping_ ||
          static_cast<int>(live_workers_.size()) >= options_.max_running_jobs) {
        return absl::OkStatus();
      }
    }
    MILLRACE_ASSIGN_OR_RETURN(const std::string next, NextToStart());
    if (next.empty()) return absl::OkStatus();
    MILLRACE_RETURN_IF_ERROR(StartJob(next));
  }
}

absl::StatusOr<std::string> JobManager::NextToStart() {
  std::map<std::string, absl::Time> not_before;
  {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = absl::Now();
    for (auto it = not_before_.begin(); it != not_before_.end();) {
      it = it->second <= now ? not_before_.erase(it) : std::next(it);
    }
    for (const auto& [id, time] : not_before_) retry_time_ = std::min(retry_time_, time);
    not_before = not_before_;
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<std::string> queued,
                            store_->QueuedIds(static_cast<int>(not_before.size()) + 1));
  for (const std::string& id : queued) {
    if (not_before.count(id) == 0) return id;
  }
  return "";
}

absl::Status JobManager::StartJob(const std::string& job_id) {
  {
    // Before the state changes, so that a drain that begins now waits for this worker.
    absl::MutexLock lock(&mutex_);
    if (draining_) return absl::OkStatus();
    live_workers_[job_id] = 0;
  }
  Job job;
  const absl::Status stored = store_->Write([&](JobTransaction& t) -> absl::Status {
    MILLRACE_ASSIGN_OR_RETURN(StoredJob * queued, t.Get(job_id));
    if (queued->job.state() != Job::QUEUED) return absl::OkStatus();
    StoredAttempt attempt;
    attempt.attempt = queued->job.attempt() + 1;
    attempt.start_time = absl::Now();
    queued->job.set_attempt(attempt.attempt);
    MILLRACE_RETURN_IF_ERROR(t.PutAttempt(*queued, attempt));
    MILLRACE_RETURN_IF_ERROR(t.Transition(queued, Job::PREPARING, v1::REASON_UNSPECIFIED, ""));
    job = queued->job;
    return absl::OkStatus();
  });
  if (!stored.ok() || job.attempt() == 0) {
    absl::MutexLock lock(&mutex_);
    live_workers_.erase(job_id);
    // Somebody paused, cancelled or deleted it first.
    return absl::IsNotFound(stored) ? absl::OkStatus() : stored;
  }
  const int32_t attempt = job.attempt();
  {
    absl::MutexLock lock(&mutex_);
    live_workers_[job_id] = attempt;
  }
  // What another job of the same id left, be it that its folder could not be moved away or that the
  // store was lost, is not this one's to continue from.
  absl::Status started =
      attempt == 1 ? SetAside(options_.paths, job_id).status() : absl::OkStatus();
  if (started.ok()) started = launcher_->Start(job_id, attempt, job.spec());
  if (!started.ok()) {
    if (absl::IsUnavailable(started)) {
      absl::MutexLock lock(&mutex_);
      not_before_[job_id] = absl::Now() + options_.start_retry_delay;
    }
    const auto fail = [=](JobTransaction& t) {
      return ApplyStartFailure(t, job_id, attempt, started);
    };
    if (absl::Status failed = store_->Write(fail); !failed.ok()) {
      // Ends as a crash once it can be stored.
      AfterExit(job_id, attempt, {.description = std::string(started.message())},
                std::move(failed));
    } else {
      AfterExit(job_id, attempt, {}, absl::OkStatus());
    }
    return absl::OkStatus();
  }
  // A request that came while the worker was being started found none to pass it on to.
  if (absl::StatusOr<StoredJob> now = store_->GetJob(job_id); now.ok()) {
    PassOnRequest(job_id, now->job);
    if (draining() && now->job.attempt() == attempt) StopForShutdown(job_id);
  }
  return absl::OkStatus();
}

void JobManager::PassOnRequest(const std::string& job_id, const Job& job) {
  if (job.state() == Job::PAUSING) launcher_->RequestStop(job_id, job.attempt(), "PAUSE");
  if (job.state() == Job::CANCELLING) {
    launcher_->RequestCancel(job_id, job.attempt(), options_.cancel_grace);
  }
}

void JobManager::AfterExit(const std::string& job_id, int32_t attempt, const WorkerExit& exit,
                           absl::Status stored) {
  if (stored.ok() && exit.on_stored) exit.on_stored();
  absl::MutexLock lock(&mutex_);
  if (stored.ok()) {
    const auto found = live_workers_.find(job_id);
    if (found != live_workers_.end() && found->second == attempt) live_workers_.erase(found);
    schedule_wanted_ = true;
  } else {
    unstored_exits_.push_back({job_id, attempt, exit});
    RetrySoonLocked();
  }
}

void JobManager::StopForShutdown(const std::string& job_id) {
  // The mark tells the next daemon that a worker that is gone by then was meant to be.
  const absl::Status marked = store_->Write([&](JobTransaction& t) -> absl::Status {
    MILLRACE_ASSIGN_OR_RETURN(StoredJob * stored, t.Get(job_id));
    if (!HasWorker(stored->job.state())) return absl::OkStatus();
    MILLRACE_ASSIGN_OR_RETURN(std::optional<StoredAttempt> attempt,
                              t.FindAttempt(*stored, stored->job.attempt()));
    if (!attempt.has_value()) return absl::OkStatus();
    attempt->stop_trigger = "SHUTDOWN";
    return t.PutAttempt(*stored, *attempt);
  });
  // Without the mark the job is restarted all the same, counted as a crash.
  (void)marked;
  absl::StatusOr<StoredJob> stored = store_->GetJob(job_id);
  if (stored.ok() &&
      (stored->job.state() == Job::PREPARING || stored->job.state() == Job::RUNNING)) {
    launcher_->RequestStop(job_id, stored->job.attempt(), "SHUTDOWN");
  }
}

void JobManager::BeginDrain() {
  {
    absl::MutexLock lock(&mutex_);
    if (draining_) return;
    draining_ = true;
  }
  for (const std::string& job_id : LiveWorkers()) StopForShutdown(job_id);
}

void JobManager::StopScheduling() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (scheduler_.joinable()) scheduler_.join();
}

bool JobManager::WaitUntilIdle(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  const auto is_idle = [this]()
                           ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return live_workers_.empty(); };
  return mutex_.AwaitWithTimeout(absl::Condition(&is_idle), timeout);
}

}  // namespace millrace
