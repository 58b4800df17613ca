// Jobs, attempts and events in SQLite. README.md describes the format.
//
//   MILLRACE_ASSIGN_OR_RETURN(auto store, JobStore::Open(paths.Database(), {}));
//   MILLRACE_RETURN_IF_ERROR(store->Write([&](JobTransaction& t) { … }));
//   MILLRACE_ASSIGN_OR_RETURN(StoredJob job, store->GetJob("plays"));
//
// All changes go through one writer thread, in the order in which they were handed in; those that
// wait together share one commit, so that a stream of reports costs one sync each
// `commit_interval`, not one a report. Readers see what is committed and nothing else. Thread-safe.
#ifndef MILLRACE_SERVER_JOBS_JOB_STORE_H_
#define MILLRACE_SERVER_JOBS_JOB_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/jobs/job_transaction.h"
#include "server/jobs/sqlite.h"
#include "server/jobs/stored_job.h"

namespace millrace {

// Part of a job's history.
struct EventPage {
  std::vector<v1::JobEvent> events;
  // The job has ended and no event follows these.
  bool complete = false;
  // Sequence of the newest event there is.
  int64_t last_sequence = 0;
};

// Whether an attempt is over.
struct AttemptStatus {
  // 0 when the job was never started.
  int32_t attempt = 0;
  bool over = false;
};

class JobStore {
 public:
  struct Options {
    // A change that is not urgent waits until this long after the commit before.
    absl::Duration commit_interval = absl::Milliseconds(20);
  };

  // A change. Runs on the writer thread; whatever it returns other than OK undoes all of it. Must
  // not call back into Write().
  using Body = std::function<absl::Status(JobTransaction&)>;
  using Done = std::function<void(absl::Status)>;

  // Opens or creates the database. FAILED_PRECONDITION when a newer Millrace wrote it.
  static absl::StatusOr<std::unique_ptr<JobStore>> Open(const std::string& path, Options options);
  // Commits what was handed in.
  ~JobStore();

  // Commits at once; returns when it lasts, or with the error of the body or of the commit. Once it
  // lasts, `after` runs on the writer thread, before any change that is not of the same commit.
  absl::Status Write(Body body, const std::function<void()>& after = nullptr);
  // Returns at once; `done` runs on the writer thread after the commit.
  void WriteSoon(Body body, Done done);

  // Called on the writer thread after a commit, for each job that a change touched. Set before the
  // first write.
  void set_listener(std::function<void(const Committed&)> listener) {
    listener_ = std::move(listener);
  }
  // Called on the writer thread with the time each commit took. Set before the first write.
  void set_commit_observer(std::function<void(absl::Duration)> observer) {
    commit_observer_ = std::move(observer);
  }

  // JOB_NOT_FOUND.
  absl::StatusOr<StoredJob> GetJob(const std::string& job_id);
  // Null when there is none.
  absl::StatusOr<std::unique_ptr<StoredJob>> FindByRequestId(const std::string& request_id);
  // Newest first, those older than `before_ordinal`; no states is all.
  absl::StatusOr<std::vector<StoredJob>> ListJobs(int64_t before_ordinal,
                                                  const std::set<v1::Job::State>& states,
                                                  int limit);
  absl::StatusOr<std::map<v1::Job::State, int64_t>> CountByState();
  // In the order in which they start.
  absl::StatusOr<std::vector<std::string>> QueuedIds(int limit);
  absl::StatusOr<EventPage> ReadEvents(const std::string& job_id, int64_t after_sequence,
                                       int max_events);
  // `attempt` 0 is the newest. ATTEMPT_NOT_FOUND.
  absl::StatusOr<AttemptStatus> GetAttempt(const std::string& job_id, int32_t attempt);
  // Ids of jobs not ended that need the resource (ResourcesOf).
  absl::StatusOr<std::vector<std::string>> JobsThatNeed(const std::string& name);

 private:
  struct Change {
    Body body;
    Done done;
  };

  JobStore(Options options, std::unique_ptr<Database> writer, std::unique_ptr<Database> reader);
  void WriteLoop();
  void Commit(std::vector<Change> changes);
  absl::StatusOr<StoredJob> GetJobLocked(const std::string& job_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(reader_mutex_);
  absl::Status SetQueuePosition(StoredJob* stored) ABSL_EXCLUSIVE_LOCKS_REQUIRED(reader_mutex_);
  // Of a page, in one pass over the queue.
  absl::Status SetQueuePositions(std::vector<StoredJob>* jobs)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(reader_mutex_);

  const Options options_;
  std::function<void(const Committed&)> listener_;
  std::function<void(absl::Duration)> commit_observer_;

  // Used by the writer thread alone.
  std::unique_ptr<Database> writer_;

  absl::Mutex reader_mutex_;
  std::unique_ptr<Database> reader_ ABSL_GUARDED_BY(reader_mutex_);

  absl::Mutex mutex_;
  std::vector<Change> waiting_ ABSL_GUARDED_BY(mutex_);
  bool urgent_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_JOBS_JOB_STORE_H_
