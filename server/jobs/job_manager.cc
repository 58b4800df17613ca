#include "server/jobs/job_manager.h"

#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "engine/base/status_macros.h"
#include "server/base/errors.h"
#include "server/base/pages.h"
#include "server/base/resource_names.h"
#include "server/jobs/exit_rules.h"
#include "server/jobs/job_folders.h"
#include "server/jobs/report_rules.h"
#include "server/jobs/state_machine.h"
#include "server/jobs/submission.h"

namespace millrace {

using v1::Job;

JobManager::JobManager(Options options, JobStore* store, WorkerLauncher* launcher,
                       SpecValidator* validator, JobObserver* observer)
    : options_(std::move(options)),
      store_(store),
      launcher_(launcher),
      validator_(validator),
      observer_(observer) {
  store_->set_listener([this](const Committed& committed) { OnCommitted(committed); });
}

JobManager::~JobManager() {
  StopScheduling();
  // What the writer was still told to do calls back into this object.
  (void)store_->Write([](JobTransaction&) { return absl::OkStatus(); });
  store_->set_listener(nullptr);
}

absl::Status JobManager::RemoveLeftovers() {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<StoredJob> all,
                            store_->ListJobs(INT64_MAX, {}, INT32_MAX));
  std::set<std::string> ids;
  for (const StoredJob& stored : all) ids.insert(stored.id);
  return millrace::RemoveLeftovers(options_.paths, ids);
}

absl::Status JobManager::Start() {
  std::vector<std::string> ids;
  MILLRACE_RETURN_IF_ERROR(store_->Write([&](JobTransaction& t) -> absl::Status {
    MILLRACE_ASSIGN_OR_RETURN(
        ids, t.IdsInStates({Job::PREPARING, Job::RUNNING, Job::PAUSING, Job::CANCELLING}));
    return absl::OkStatus();
  }));
  for (const std::string& id : ids) {
    MILLRACE_ASSIGN_OR_RETURN(const StoredJob stored, store_->GetJob(id));
    const int32_t attempt = stored.job.attempt();
    {
      absl::MutexLock lock(&mutex_);
      live_workers_[id] = attempt;
    }
    MILLRACE_ASSIGN_OR_RETURN(const bool adopted, launcher_->Adopt(id, attempt));
    if (adopted) {
      // Read again: a request may have come before there was anyone to pass it on to.
      MILLRACE_ASSIGN_OR_RETURN(const StoredJob now, store_->GetJob(id));
      PassOnRequest(id, now.job);
    } else {
      WorkerExited(
          id, attempt,
          {.description = "it was gone when the daemon started", .counts_as_crash = false});
    }
  }
  if (observer_ != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<StoredJob> active,
                              store_->ListJobs(INT64_MAX,
                                               {Job::QUEUED, Job::PREPARING, Job::RUNNING,
                                                Job::PAUSING, Job::PAUSED, Job::CANCELLING},
                                               INT32_MAX));
    for (const StoredJob& stored : active) observer_->OnJobEvent(stored.job, nullptr);
  }
  scheduler_ = std::thread([this] { ScheduleLoop(); });
  WakeScheduler();
  return absl::OkStatus();
}

void JobManager::OnCommitted(const Committed& committed) {
  bool state_changed = committed.deleted;
  for (const v1::JobEvent& event : committed.events) {
    state_changed = state_changed || event.has_state_change();
    if (observer_ != nullptr) observer_->OnJobEvent(committed.job, &event);
  }
  if (committed.deleted && observer_ != nullptr) observer_->OnJobDeleted(committed.job_id);
  if (state_changed && !committed.deleted && HasEnded(committed.job.state())) {
    absl::MutexLock lock(&mutex_);
    ended_jobs_.push_back(committed.job_id);
  }
  hub_.Wake(committed.job_id);
  if (state_changed) WakeScheduler();
}

namespace {

// Leaves room within a message, which holds 4 MiB.
constexpr size_t kMaxPageBytes = 3 << 20;

absl::Status DrainingError() {
  return WithRetryDelay(
      MakeError(ErrorReason::kDraining,
                "the daemon is being stopped; try again once it has been started again"),
      absl::Seconds(5));
}

}  // namespace

absl::StatusOr<Job> JobManager::CreateJob(const v1::CreateJobRequest& request) {
  MILLRACE_RETURN_IF_ERROR(CheckCreateRequest(request));
  StoredJob submission;
  submission.request_id = request.request_id();
  submission.submitted_spec = SpecFingerprint(request.spec());
  MILLRACE_ASSIGN_OR_RETURN(auto earlier, FindEarlierSubmission(store_, request, submission));
  if (earlier != nullptr) return earlier->job;
  if (draining()) return DrainingError();

  MILLRACE_ASSIGN_OR_RETURN(ValidatedSpec validated,
                            validator_->ResolveAndValidate(request.spec()));
  *submission.job.mutable_spec() = std::move(validated.spec);
  const auto check_room = [this](int64_t queued) -> absl::Status {
    if (queued < options_.max_queued_jobs) return absl::OkStatus();
    return WithRetryDelay(
        MakeError(ErrorReason::kQueueFull,
                  absl::StrCat("the queue is full with ", queued,
                               " jobs (max_queued_jobs); cancel one or wait until one has run")),
        absl::Minutes(1));
  };
  if (request.validate_only()) {
    MILLRACE_ASSIGN_OR_RETURN(const auto counts, store_->CountByState());
    const auto queued = counts.find(Job::QUEUED);
    MILLRACE_RETURN_IF_ERROR(check_room(queued == counts.end() ? 0 : queued->second));
    if (!request.job_id().empty()) submission.job.set_name(JobName(request.job_id()));
    *submission.job.mutable_plan() = std::move(validated.plan);
    return submission.job;
  }

  std::string id;
  MILLRACE_RETURN_IF_ERROR(store_->Write([&](JobTransaction& t) -> absl::Status {
    // Once more, for another call may have come between.
    MILLRACE_ASSIGN_OR_RETURN(StoredJob * same, FindEarlierSubmission(t, request, submission));
    if (same != nullptr) {
      id = same->id;
      return absl::OkStatus();
    }
    if (draining()) return DrainingError();
    MILLRACE_ASSIGN_OR_RETURN(const int64_t queued, t.Count(Job::QUEUED));
    MILLRACE_RETURN_IF_ERROR(check_room(queued));
    MILLRACE_ASSIGN_OR_RETURN(submission.id, ChooseJobId(t, request));
    id = submission.id;
    return t.Create(submission).status();
  }));
  return GetJob(id);
}

absl::StatusOr<Job> JobManager::GetJob(const std::string& job_id) {
  MILLRACE_ASSIGN_OR_RETURN(StoredJob stored, store_->GetJob(job_id));
  return std::move(stored.job);
}

absl::StatusOr<v1::ListJobsResponse> JobManager::ListJobs(const v1::ListJobsRequest& request) {
  MILLRACE_ASSIGN_OR_RETURN(const int32_t size, PageSize(request.page_size()));
  // In one order and each once, so that the same request makes the same token and statement.
  std::set<Job::State> states;
  for (const int state : request.states()) {
    if (!Job::State_IsValid(state) || state == Job::STATE_UNSPECIFIED) {
      return MakeFieldError(ErrorReason::kRequestInvalid,
                            {{"states", absl::StrCat(state, " is no state of a job")}});
    }
    states.insert(static_cast<Job::State>(state));
  }
  const std::string filter = absl::StrCat("jobs ", absl::StrJoin(states, ","));
  MILLRACE_ASSIGN_OR_RETURN(const std::string key, DecodePageToken(request.page_token(), filter));
  int64_t before_ordinal = INT64_MAX;
  if (!key.empty() && !absl::SimpleAtoi(key, &before_ordinal)) {
    return MakeFieldError(ErrorReason::kRequestInvalid, {{"page_token", "was not given out here"}});
  }
  MILLRACE_ASSIGN_OR_RETURN(std::vector<StoredJob> jobs,
                            store_->ListJobs(before_ordinal, states, size + 1));
  v1::ListJobsResponse response;
  size_t page_bytes = 0;
  int64_t last_ordinal = 0;
  for (StoredJob& stored : jobs) {
    page_bytes += stored.job.ByteSizeLong();
    if (response.jobs_size() == size || (response.jobs_size() > 0 && page_bytes > kMaxPageBytes)) {
      response.set_next_page_token(EncodePageToken(absl::StrCat(last_ordinal), filter));
      break;
    }
    last_ordinal = stored.ordinal;
    *response.add_jobs() = std::move(stored.job);
  }
  return response;
}

absl::Status JobManager::DeleteJob(const std::string& job_id) {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<std::string> users, JobsThatNeed(JobName(job_id)));
  if (!users.empty()) {
    return MakeError(
        ErrorReason::kInUse,
        absl::StrCat(JobName(job_id), " has the checkpoint that ", absl::StrJoin(users, ", "),
                     users.size() == 1 ? " begins" : " begin",
                     " with; cancel that job or wait until it has ended"));
  }
  std::string trash;
  const auto remove = [&](JobTransaction& t) -> absl::Status {
    MILLRACE_ASSIGN_OR_RETURN(StoredJob * stored, t.Get(job_id));
    if (!HasEnded(stored->job.state())) {
      return IllegalState(job_id, stored->job.state(),
                          "deleted before it has ended; cancel it first");
    }
    MILLRACE_RETURN_IF_ERROR(MarkDeleted(options_.paths, job_id));
    return t.Delete(stored);
  };
  // Not before the job is gone for good, nor later: a new job of the same id may be started then.
  const auto move = [&] { trash = MoveJobToTrash(options_.paths, job_id).value_or(""); };
  MILLRACE_RETURN_IF_ERROR(store_->Write(remove, move));
  // What cannot be moved or removed now is once the daemon starts again.
  RemoveFolder(trash).IgnoreError();
  return absl::OkStatus();
}

absl::StatusOr<Job> JobManager::CancelJob(const std::string& job_id) {
  MILLRACE_RETURN_IF_ERROR(store_->Write([&](JobTransaction& t) -> absl::Status {
    MILLRACE_ASSIGN_OR_RETURN(StoredJob * stored, t.Get(job_id));
    const Job::State state = stored->job.state();
    if (state == Job::CANCELLING || state == Job::CANCELLED) return absl::OkStatus();
    if (HasEnded(state)) return IllegalState(job_id, state, "cancelled: it has ended");
    MILLRACE_RETURN_IF_ERROR(t.Transition(stored, Job::CANCELLING, v1::REASON_USER, ""));
    if (HasWorker(state)) return absl::OkStatus();
    return t.Transition(stored, Job::CANCELLED, v1::REASON_USER, "");
  }));
  MILLRACE_ASSIGN_OR_RETURN(Job job, GetJob(job_id));
  PassOnRequest(job_id, job);
  return job;
}

absl::StatusOr<Job> JobManager::PauseJob(const std::string& job_id) {
  MILLRACE_RETURN_IF_ERROR(store_->Write([&](JobTransaction& t) -> absl::Status {
    MILLRACE_ASSIGN_OR_RETURN(StoredJob * stored, t.Get(job_id));
    switch (const Job::State state = stored->job.state()) {
      case Job::PAUSING:
      case Job::PAUSED:
        return absl::OkStatus();
      case Job::QUEUED:
        return t.Transition(stored, Job::PAUSED, v1::REASON_USER, "");
      case Job::PREPARING:
      case Job::RUNNING:
        return t.Transition(stored, Job::PAUSING, v1::REASON_USER, "");
      default:
        return IllegalState(job_id, state, "paused; only a job that waits or runs can");
    }
  }));
  MILLRACE_ASSIGN_OR_RETURN(Job job, GetJob(job_id));
  PassOnRequest(job_id, job);
  return job;
}

absl::StatusOr<Job> JobManager::ResumeJob(const std::string& job_id) {
  MILLRACE_RETURN_IF_ERROR(store_->Write([&](JobTransaction& t) -> absl::Status {
    MILLRACE_ASSIGN_OR_RETURN(StoredJob * stored, t.Get(job_id));
    switch (const Job::State state = stored->job.state()) {
      case Job::QUEUED:
      case Job::PREPARING:
      case Job::RUNNING:
        return absl::OkStatus();
      case Job::PAUSED:
      case Job::FAILED:
        if (draining()) return DrainingError();
        stored->job.set_restarts(0);
        return t.Transition(stored, Job::QUEUED, v1::REASON_USER, "resumed");
      default:
        return IllegalState(job_id, state, "resumed; only a paused or failed job can");
    }
  }));
  return GetJob(job_id);
}

absl::StatusOr<EventPage> JobManager::ReadEvents(const std::string& job_id, int64_t after_sequence,
                                                 int max_events) {
  return store_->ReadEvents(job_id, after_sequence, max_events);
}

EventHub::Subscription JobManager::Subscribe(const std::string& job_id,
                                             std::function<void()> wake) {
  return hub_.Subscribe(job_id, std::move(wake));
}

absl::StatusOr<AttemptStatus> JobManager::GetAttempt(const std::string& job_id, int32_t attempt) {
  return store_->GetAttempt(job_id, attempt);
}

absl::StatusOr<std::map<Job::State, int64_t>> JobManager::CountByState() {
  return store_->CountByState();
}

absl::StatusOr<std::vector<std::string>> JobManager::JobsThatNeed(const std::string& name) {
  MILLRACE_ASSIGN_OR_RETURN(std::vector<std::string> names, store_->JobsThatNeed(name));
  for (std::string& id : names) id = JobName(id);
  return names;
}

bool JobManager::draining() const {
  absl::MutexLock lock(&mutex_);
  return draining_;
}

std::vector<std::string> JobManager::LiveWorkers() const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> ids;
  for (const auto& [id, attempt] : live_workers_) ids.push_back(id);
  return ids;
}

void JobManager::ApplyReports(const std::string& job_id, int32_t attempt,
                              std::vector<v1::WorkerReport> reports, ReportsDone done) {
  auto acknowledge = std::make_shared<int64_t>(0);
  store_->WriteSoon(
      [=, reports = std::move(reports)](JobTransaction& t) -> absl::Status {
        MILLRACE_ASSIGN_OR_RETURN(*acknowledge,
                                  millrace::ApplyReports(t, job_id, attempt, reports));
        return absl::OkStatus();
      },
      [=, done = std::move(done)](absl::Status status) {
        if (status.ok()) {
          done(*acknowledge);
        } else {
          done(std::move(status));
        }
      });
}

void JobManager::WorkerExited(const std::string& job_id, int32_t attempt, const WorkerExit& exit) {
  store_->WriteSoon(
      [=, this](JobTransaction& t) -> absl::Status {
        const absl::Status applied =
            millrace::ApplyReports(t, job_id, attempt, exit.unsent).status();
        // Reports that nobody can place must not keep the exit from being stored.
        if (!applied.ok() && !absl::IsNotFound(applied) && !absl::IsFailedPrecondition(applied)) {
          return applied;
        }
        return ApplyExit(t, job_id, attempt, exit, options_.max_restarts);
      },
      [=, this](absl::Status status) { AfterExit(job_id, attempt, exit, std::move(status)); });
}

}  // namespace millrace
