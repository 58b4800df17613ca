// One change of the job store: all of it happens or nothing.
//
//   store->Write([&](JobTransaction& t) -> absl::Status {
//     MILLRACE_ASSIGN_OR_RETURN(StoredJob* job, t.Get(id));
//     return t.Transition(job, v1::Job::PAUSING, v1::REASON_USER, "");
//   });
//
// A StoredJob belongs to the transaction; what is changed through the pointer is written at its
// end, if an event was appended or MarkChanged() called. The state is changed by Transition() and
// by nothing else.
#ifndef MILLRACE_SERVER_JOBS_JOB_TRANSACTION_H_
#define MILLRACE_SERVER_JOBS_JOB_TRANSACTION_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/jobs/sqlite.h"
#include "server/jobs/stored_job.h"

namespace millrace {

class JobTransaction {
 public:
  // `db` is within a transaction.
  explicit JobTransaction(Database* db) : db_(db) {}
  JobTransaction(const JobTransaction&) = delete;
  JobTransaction& operator=(const JobTransaction&) = delete;

  // JOB_NOT_FOUND.
  absl::StatusOr<StoredJob*> Get(const std::string& job_id);
  // Null when there is none.
  absl::StatusOr<StoredJob*> Find(const std::string& job_id);
  absl::StatusOr<StoredJob*> FindByRequestId(const std::string& request_id);
  absl::StatusOr<std::vector<std::string>> IdsInStates(const std::vector<v1::Job::State>& states);
  absl::StatusOr<int64_t> Count(v1::Job::State state);

  // A new job, QUEUED. `job` has id, request_id, submitted_spec and job.spec.
  absl::StatusOr<StoredJob*> Create(StoredJob job);

  // The one place that changes a job's state: checks that it is legal (else ILLEGAL_STATE), sets
  // the times, and appends the event.
  absl::Status Transition(StoredJob* job, v1::Job::State to, v1::Reason reason,
                          absl::string_view message);

  // Gives the event the next sequence, the job's attempt and, where it has none, the time.
  absl::Status Append(StoredJob* job, v1::JobEvent event);

  // Has a job written that changed without an event.
  void MarkChanged(StoredJob* job) { entries_.at(job->id)->changed = true; }

  // Removes the job with its attempts and events.
  absl::Status Delete(StoredJob* job);

  absl::StatusOr<std::optional<StoredAttempt>> FindAttempt(const StoredJob& job, int32_t attempt);
  absl::Status PutAttempt(const StoredJob& job, const StoredAttempt& attempt);

  // Writes what was changed; called by the store. Then takes what was done, job by job.
  absl::Status Flush();
  std::vector<Committed> TakeCommitted() { return std::move(committed_); }

 private:
  struct Entry {
    StoredJob job;
    std::vector<v1::JobEvent> events;
    bool changed = false;
    bool deleted = false;
  };

  absl::StatusOr<StoredJob*> Load(absl::StatusOr<Rows> rows);
  absl::Status Write(const Entry& entry);

  Database* const db_;
  std::map<std::string, std::unique_ptr<Entry>> entries_;
  std::vector<Committed> committed_;
};

// For readers that have no transaction: columns `ordinal, id, request_id, submitted_spec,
// queue_order, highest_step, record`.
extern const char kJobColumns[];
absl::StatusOr<StoredJob> ReadJobRow(const Rows& rows);

// Columns `attempt, start_micros, end_micros, last_report, stop_trigger, ended, exit`.
extern const char kAttemptColumns[];
StoredAttempt ReadAttemptRow(const Rows& rows);

absl::Status JobNotFound(const std::string& job_id);

}  // namespace millrace

#endif  // MILLRACE_SERVER_JOBS_JOB_TRANSACTION_H_
