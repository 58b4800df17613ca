#include "server/jobs/job_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "engine/base/status_macros.h"
#include "server/base/errors.h"
#include "server/jobs/schema.h"
#include "server/jobs/state_machine.h"

namespace millrace {

using v1::Job;

absl::StatusOr<std::unique_ptr<JobStore>> JobStore::Open(const std::string& path, Options options) {
  MILLRACE_ASSIGN_OR_RETURN(auto writer, Database::Open(path));
  MILLRACE_RETURN_IF_ERROR(PrepareSchema(writer.get()));
  MILLRACE_ASSIGN_OR_RETURN(auto reader, Database::Open(path));
  return std::unique_ptr<JobStore>(new JobStore(options, std::move(writer), std::move(reader)));
}

JobStore::JobStore(Options options, std::unique_ptr<Database> writer,
                   std::unique_ptr<Database> reader)
    : options_(options), writer_(std::move(writer)), reader_(std::move(reader)) {
  thread_ = std::thread([this] { WriteLoop(); });
}

JobStore::~JobStore() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

absl::Status JobStore::Write(Body body, const std::function<void()>& after) {
  absl::Status result;
  absl::Notification committed;
  {
    absl::MutexLock lock(&mutex_);
    waiting_.push_back({std::move(body), [&](absl::Status status) {
                          if (status.ok() && after) after();
                          result = std::move(status);
                          committed.Notify();
                        }});
    urgent_ = true;
  }
  committed.WaitForNotification();
  return result;
}

void JobStore::WriteSoon(Body body, Done done) {
  absl::MutexLock lock(&mutex_);
  waiting_.push_back({std::move(body), std::move(done)});
}

void JobStore::WriteLoop() {
  absl::Time next_commit = absl::InfinitePast();
  while (true) {
    std::vector<Change> changes;
    {
      absl::MutexLock lock(&mutex_);
      const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !waiting_.empty();
      };
      mutex_.Await(absl::Condition(&has_work));
      const auto is_urgent = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return stopping_ || urgent_;
      };
      mutex_.AwaitWithDeadline(absl::Condition(&is_urgent), next_commit);
      if (waiting_.empty()) return;
      changes.swap(waiting_);
      urgent_ = false;
    }
    Commit(std::move(changes));
    next_commit = absl::Now() + options_.commit_interval;
  }
}

void JobStore::Commit(std::vector<Change> changes) {
  const absl::Time start = absl::Now();
  std::vector<absl::Status> results(changes.size());
  std::vector<Committed> all_committed;
  absl::Status commit = writer_->Execute("BEGIN IMMEDIATE");
  for (size_t i = 0; commit.ok() && i < changes.size(); ++i) {
    commit = writer_->Execute("SAVEPOINT change");
    if (!commit.ok()) break;
    JobTransaction transaction(writer_.get());
    results[i] = changes[i].body(transaction);
    if (results[i].ok()) results[i] = transaction.Flush();
    if (results[i].ok()) {
      for (Committed& committed : transaction.TakeCommitted()) {
        all_committed.push_back(std::move(committed));
      }
    } else {
      commit = writer_->Execute("ROLLBACK TO change");
    }
    if (commit.ok()) commit = writer_->Execute("RELEASE change");
  }
  if (commit.ok()) commit = writer_->Execute("COMMIT");
  if (!commit.ok()) {
    // Fails when SQLite has rolled back by itself already, as it does on a full disk.
    (void)writer_->Execute("ROLLBACK");
    all_committed.clear();
  }
  if (commit_observer_) commit_observer_(absl::Now() - start);
  if (listener_) {
    for (const Committed& committed : all_committed) listener_(committed);
  }
  for (size_t i = 0; i < changes.size(); ++i) {
    changes[i].done(results[i].ok() ? commit : results[i]);
  }
}

absl::Status JobStore::SetQueuePosition(StoredJob* stored) {
  if (stored->job.state() != Job::QUEUED) return absl::OkStatus();
  MILLRACE_ASSIGN_OR_RETURN(
      const int64_t position,
      reader_->Integer("SELECT COUNT(*) FROM jobs WHERE state = ? AND queue_order <= ?", 0,
                       int64_t{Job::QUEUED}, stored->queue_order));
  stored->job.set_queue_position(static_cast<int32_t>(position));
  return absl::OkStatus();
}

absl::StatusOr<StoredJob> JobStore::GetJobLocked(const std::string& job_id) {
  MILLRACE_ASSIGN_OR_RETURN(
      Rows rows,
      reader_->Query(absl::StrCat("SELECT ", kJobColumns, " FROM jobs WHERE id = ?"), job_id));
  MILLRACE_ASSIGN_OR_RETURN(const bool found, rows.Next());
  if (!found) return JobNotFound(job_id);
  return ReadJobRow(rows);
}

absl::StatusOr<StoredJob> JobStore::GetJob(const std::string& job_id) {
  absl::MutexLock lock(&reader_mutex_);
  MILLRACE_ASSIGN_OR_RETURN(StoredJob stored, GetJobLocked(job_id));
  MILLRACE_RETURN_IF_ERROR(SetQueuePosition(&stored));
  return stored;
}

absl::StatusOr<std::unique_ptr<StoredJob>> JobStore::FindByRequestId(
    const std::string& request_id) {
  absl::MutexLock lock(&reader_mutex_);
  MILLRACE_ASSIGN_OR_RETURN(
      Rows rows,
      reader_->Query(absl::StrCat("SELECT ", kJobColumns, " FROM jobs WHERE request_id = ?"),
                     request_id));
  MILLRACE_ASSIGN_OR_RETURN(const bool found, rows.Next());
  if (!found) return std::unique_ptr<StoredJob>();
  MILLRACE_ASSIGN_OR_RETURN(StoredJob stored, ReadJobRow(rows));
  MILLRACE_RETURN_IF_ERROR(SetQueuePosition(&stored));
  return std::make_unique<StoredJob>(std::move(stored));
}

absl::StatusOr<std::vector<StoredJob>> JobStore::ListJobs(int64_t before_ordinal,
                                                          const std::set<Job::State>& states,
                                                          int limit) {
  std::string sql = absl::StrCat("SELECT ", kJobColumns, " FROM jobs WHERE ordinal < ?");
  if (!states.empty()) {
    absl::StrAppend(&sql, " AND state IN (", absl::StrJoin(states, ", "), ")");
  }
  absl::StrAppend(&sql, " ORDER BY ordinal DESC LIMIT ?");

  absl::MutexLock lock(&reader_mutex_);
  std::vector<StoredJob> jobs;
  bool any_queued = false;
  {
    MILLRACE_ASSIGN_OR_RETURN(Rows rows, reader_->Query(sql, before_ordinal, int64_t{limit}));
    while (true) {
      MILLRACE_ASSIGN_OR_RETURN(const bool more, rows.Next());
      if (!more) break;
      MILLRACE_ASSIGN_OR_RETURN(StoredJob stored, ReadJobRow(rows));
      any_queued = any_queued || stored.job.state() == Job::QUEUED;
      jobs.push_back(std::move(stored));
    }
  }
  if (any_queued) MILLRACE_RETURN_IF_ERROR(SetQueuePositions(&jobs));
  return jobs;
}

absl::Status JobStore::SetQueuePositions(std::vector<StoredJob>* jobs) {
  std::vector<int64_t> queue;
  MILLRACE_ASSIGN_OR_RETURN(
      Rows rows, reader_->Query("SELECT queue_order FROM jobs WHERE state = ? ORDER BY queue_order",
                                int64_t{Job::QUEUED}));
  while (true) {
    MILLRACE_ASSIGN_OR_RETURN(const bool more, rows.Next());
    if (!more) break;
    queue.push_back(rows.Integer(0));
  }
  for (StoredJob& stored : *jobs) {
    if (stored.job.state() != Job::QUEUED) continue;
    const auto after = std::upper_bound(queue.begin(), queue.end(), stored.queue_order);
    stored.job.set_queue_position(static_cast<int32_t>(after - queue.begin()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::map<Job::State, int64_t>> JobStore::CountByState() {
  absl::MutexLock lock(&reader_mutex_);
  std::map<Job::State, int64_t> counts;
  MILLRACE_ASSIGN_OR_RETURN(Rows rows,
                            reader_->Query("SELECT state, COUNT(*) FROM jobs GROUP BY state"));
  while (true) {
    MILLRACE_ASSIGN_OR_RETURN(const bool more, rows.Next());
    if (!more) return counts;
    counts[static_cast<Job::State>(rows.Integer(0))] = rows.Integer(1);
  }
}

absl::StatusOr<std::vector<std::string>> JobStore::QueuedIds(int limit) {
  absl::MutexLock lock(&reader_mutex_);
  std::vector<std::string> ids;
  MILLRACE_ASSIGN_OR_RETURN(
      Rows rows, reader_->Query("SELECT id FROM jobs WHERE state = ? ORDER BY queue_order LIMIT ?",
                                int64_t{Job::QUEUED}, int64_t{limit}));
  while (true) {
    MILLRACE_ASSIGN_OR_RETURN(const bool more, rows.Next());
    if (!more) return ids;
    ids.push_back(rows.Text(0));
  }
}

absl::StatusOr<EventPage> JobStore::ReadEvents(const std::string& job_id, int64_t after_sequence,
                                               int max_events) {
  absl::MutexLock lock(&reader_mutex_);
  EventPage page;
  // The job first: events that are committed between the two reads only make the page longer, and
  // it then counts as incomplete.
  MILLRACE_ASSIGN_OR_RETURN(const StoredJob stored, GetJobLocked(job_id));
  page.last_sequence = stored.job.last_sequence();
  MILLRACE_ASSIGN_OR_RETURN(
      Rows rows, reader_->Query("SELECT event FROM events WHERE job = ? AND sequence > ? "
                                "ORDER BY sequence LIMIT ?",
                                stored.ordinal, after_sequence, int64_t{max_events}));
  int64_t last = after_sequence;
  while (true) {
    MILLRACE_ASSIGN_OR_RETURN(const bool more, rows.Next());
    if (!more) break;
    v1::JobEvent event;
    if (!event.ParseFromString(rows.Text(0)) || event.sequence() != last + 1) {
      return absl::DataLossError(absl::StrCat("job store: event ", last + 1, " of jobs/", job_id,
                                              " cannot be read; the database is damaged"));
    }
    last = event.sequence();
    page.events.push_back(std::move(event));
  }
  page.complete = HasEnded(stored.job.state()) && last == page.last_sequence;
  return page;
}

absl::StatusOr<AttemptStatus> JobStore::GetAttempt(const std::string& job_id, int32_t attempt) {
  absl::MutexLock lock(&reader_mutex_);
  MILLRACE_ASSIGN_OR_RETURN(const StoredJob stored, GetJobLocked(job_id));
  if (attempt == 0) attempt = stored.job.attempt();
  if (attempt == 0) return AttemptStatus{0, HasEnded(stored.job.state())};
  MILLRACE_ASSIGN_OR_RETURN(
      Rows rows, reader_->Query(absl::StrCat("SELECT ", kAttemptColumns,
                                             " FROM attempts WHERE job = ? AND attempt = ?"),
                                stored.ordinal, int64_t{attempt}));
  MILLRACE_ASSIGN_OR_RETURN(const bool found, rows.Next());
  if (!found) {
    return MakeError(ErrorReason::kAttemptNotFound,
                     absl::StrCat("jobs/", job_id, " has no attempt ", attempt, "; it has ",
                                  stored.job.attempt() == 0
                                      ? "not started yet"
                                      : absl::StrCat("attempts 1 to ", stored.job.attempt())));
  }
  return AttemptStatus{attempt, ReadAttemptRow(rows).over()};
}

absl::StatusOr<std::vector<std::string>> JobStore::JobsThatNeed(const std::string& name) {
  absl::MutexLock lock(&reader_mutex_);
  std::vector<std::string> ids;
  MILLRACE_ASSIGN_OR_RETURN(
      Rows rows,
      reader_->Query("SELECT id FROM jobs WHERE instr(char(10) || needs || char(10), "
                     "char(10) || ? || char(10)) > 0 AND state NOT IN (?, ?, ?) "
                     "ORDER BY ordinal",
                     name, int64_t{Job::SUCCEEDED}, int64_t{Job::FAILED}, int64_t{Job::CANCELLED}));
  while (true) {
    MILLRACE_ASSIGN_OR_RETURN(const bool more, rows.Next());
    if (!more) return ids;
    ids.push_back(rows.Text(0));
  }
}

}  // namespace millrace
