// The core of the service: jobs from submission to end. Knows nothing of gRPC, processes or HTTP.
//
//   MILLRACE_ASSIGN_OR_RETURN(auto store, JobStore::Open(paths.Database(), {}));
//   auto manager = std::make_unique<JobManager>(options, store.get(), &launcher, &validator);
//   MILLRACE_RETURN_IF_ERROR(manager->RemoveLeftovers());
//   MILLRACE_RETURN_IF_ERROR(manager->Start());      // adopts or restarts what was running
//   manager->CreateJob(request);                      // returns once it is stored
//   …
//   manager->BeginDrain();
//   manager->WaitUntilIdle(absl::Seconds(30));
//   manager->StopScheduling();                        // before the launcher ends
//
// Every change is one transaction of the JobStore and lasts before the call returns. Thread-safe.
#ifndef MILLRACE_SERVER_JOBS_JOB_MANAGER_H_
#define MILLRACE_SERVER_JOBS_JOB_MANAGER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "millrace/v1/job_service.pb.h"
#include "server/base/paths.h"
#include "server/jobs/event_hub.h"
#include "server/jobs/job_observer.h"
#include "server/jobs/job_store.h"
#include "server/jobs/spec_validator.h"
#include "server/jobs/worker_launcher.h"

namespace millrace {

class JobManager : public WorkerReportSink {
 public:
  struct Options {
    DataPaths paths;
    // Jobs with a worker at the same time.
    int max_running_jobs = 1;
    // Jobs that wait; one more is QUEUE_FULL.
    int max_queued_jobs = 1000;
    // Crashes in a row, without a step of progress between, after which a job is started again; the
    // next crash fails it.
    int max_restarts = 3;
    // How long a cancelled worker may take before it is killed.
    absl::Duration cancel_grace = absl::Seconds(10);
    // How long a job waits whose worker could not be started for now.
    absl::Duration start_retry_delay = absl::Seconds(10);
  };

  // `store`, `launcher`, `validator` and `observer` (may be null) outlive the manager. Nothing is
  // started before Start().
  JobManager(Options options, JobStore* store, WorkerLauncher* launcher, SpecValidator* validator,
             JobObserver* observer = nullptr);
  ~JobManager() override;

  // Removes the folders of deleted jobs that an earlier daemon left. Before anyone calls the
  // methods below.
  absl::Status RemoveLeftovers();

  // Reconciles: a job whose worker lives is adopted, others that had one are queued again or, if
  // they were being paused or cancelled, brought to that end. Then starts what is queued.
  absl::Status Start();

  // The methods of JobService, which documents their errors.
  absl::StatusOr<v1::Job> CreateJob(const v1::CreateJobRequest& request);
  absl::StatusOr<v1::Job> GetJob(const std::string& job_id);
  absl::StatusOr<v1::ListJobsResponse> ListJobs(const v1::ListJobsRequest& request);
  absl::Status DeleteJob(const std::string& job_id);
  absl::StatusOr<v1::Job> CancelJob(const std::string& job_id);
  absl::StatusOr<v1::Job> PauseJob(const std::string& job_id);
  absl::StatusOr<v1::Job> ResumeJob(const std::string& job_id);

  // Events after a sequence, oldest first, and whether they are the last for now or for good.
  absl::StatusOr<EventPage> ReadEvents(const std::string& job_id, int64_t after_sequence,
                                       int max_events);

  // Calls `wake` on some thread soon after each commit that touched the job, until the subscription
  // is destroyed (which waits for a call in progress, unless made from within it). Subscribe first,
  // then read: nothing is missed.
  EventHub::Subscription Subscribe(const std::string& job_id, std::function<void()> wake);

  // Whether an attempt is over; `attempt` 0 is the newest, whose number comes back (0: never
  // started). ATTEMPT_NOT_FOUND.
  absl::StatusOr<AttemptStatus> GetAttempt(const std::string& job_id, int32_t attempt);

  absl::StatusOr<std::map<v1::Job::State, int64_t>> CountByState();

  // Names (`jobs/x`) of jobs not ended that need the resource `name`: `datasets/x`, `models/x`,
  // `tokenizers/x`, or `jobs/x` whose checkpoint they begin with.
  absl::StatusOr<std::vector<std::string>> JobsThatNeed(const std::string& name);

  // From now on no job is created, resumed or started; running workers are asked to stop with a
  // SHUTDOWN checkpoint, after which their jobs wait for the next start.
  void BeginDrain();
  bool draining() const;

  // Starts no worker from now on, and waits for a start in progress. The destructor does the same.
  void StopScheduling();

  // Ids of jobs whose worker is alive or about to be.
  std::vector<std::string> LiveWorkers() const;

  int64_t watcher_count() const { return hub_.subscriber_count(); }

  // Waits until no worker is left. False when `timeout` passed first; those workers go on, and the
  // next daemon adopts them.
  bool WaitUntilIdle(absl::Duration timeout);

  // WorkerReportSink
  void ApplyReports(const std::string& job_id, int32_t attempt,
                    std::vector<v1::WorkerReport> reports, ReportsDone done) override;
  void WorkerExited(const std::string& job_id, int32_t attempt, const WorkerExit& exit) override;

 private:
  // An exit that could not be stored yet.
  struct UnstoredExit {
    std::string job_id;
    int32_t attempt;
    WorkerExit exit;
  };

  void OnCommitted(const Committed& committed);

  // In job_scheduling.cc: when a worker starts, stops and is gone.
  void WakeScheduler();
  void ScheduleLoop();
  absl::Status StartQueuedJobs();
  // The first in the queue that need not wait; empty when there is none.
  absl::StatusOr<std::string> NextToStart();
  void RemovePreparedOf(const std::vector<std::string>& ended_jobs);
  absl::Status StartJob(const std::string& job_id);
  // Tells the worker of the job's attempt what the job's state asks of it.
  void PassOnRequest(const std::string& job_id, const v1::Job& job);
  void StopForShutdown(const std::string& job_id);
  void AfterExit(const std::string& job_id, int32_t attempt, const WorkerExit& exit,
                 absl::Status stored);
  void RetrySoonLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  JobStore* const store_;
  WorkerLauncher* const launcher_;
  SpecValidator* const validator_;
  JobObserver* const observer_;
  EventHub hub_;

  mutable absl::Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool schedule_wanted_ ABSL_GUARDED_BY(mutex_) = false;
  // Jobs whose worker is alive or about to be, with its attempt (0 until that is stored).
  std::map<std::string, int32_t> live_workers_ ABSL_GUARDED_BY(mutex_);
  std::vector<UnstoredExit> unstored_exits_ ABSL_GUARDED_BY(mutex_);
  // When a job whose worker could not be started is tried again.
  std::map<std::string, absl::Time> not_before_ ABSL_GUARDED_BY(mutex_);
  // Whose prepared data is to go.
  std::vector<std::string> ended_jobs_ ABSL_GUARDED_BY(mutex_);
  absl::Time retry_time_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  std::thread scheduler_;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_JOBS_JOB_MANAGER_H_
