#include "server/jobs/job_transaction.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "engine/base/status_macros.h"
#include "server/base/errors.h"
#include "server/base/resource_names.h"
#include "server/jobs/job_resources.h"
#include "server/jobs/state_machine.h"

namespace millrace {

using v1::Job;

const char kJobColumns[] =
    "ordinal, id, request_id, submitted_spec, queue_order, highest_step, record";
const char kAttemptColumns[] =
    "attempt, start_micros, end_micros, last_report, stop_trigger, ended, exit";

absl::StatusOr<StoredJob> ReadJobRow(const Rows& rows) {
  StoredJob stored;
  stored.ordinal = rows.Integer(0);
  stored.id = rows.Text(1);
  stored.request_id = rows.Text(2);
  stored.submitted_spec = rows.Text(3);
  stored.queue_order = rows.Integer(4);
  stored.highest_step = rows.Integer(5);
  if (!stored.job.ParseFromString(rows.Text(6))) {
    return absl::DataLossError(absl::StrCat("job store: the record of jobs/", stored.id,
                                            " cannot be read; the database is damaged"));
  }
  return stored;
}

StoredAttempt ReadAttemptRow(const Rows& rows) {
  StoredAttempt stored;
  stored.attempt = static_cast<int32_t>(rows.Integer(0));
  stored.start_time = absl::FromUnixMicros(rows.Integer(1));
  if (rows.Integer(2) != 0) stored.end_time = absl::FromUnixMicros(rows.Integer(2));
  stored.last_report = rows.Integer(3);
  stored.stop_trigger = rows.Text(4);
  stored.ended.ParseFromString(rows.Text(5));
  stored.exit = rows.Text(6);
  return stored;
}

absl::Status JobNotFound(const std::string& job_id) {
  return WithMetadata(
      MakeError(
          ErrorReason::kJobNotFound,
          absl::StrCat("jobs/", job_id, " does not exist; `millrace jobs` lists those that do")),
      "job", JobName(job_id));
}

absl::StatusOr<StoredJob*> JobTransaction::Load(absl::StatusOr<Rows> rows) {
  MILLRACE_RETURN_IF_ERROR(rows.status());
  MILLRACE_ASSIGN_OR_RETURN(const bool found, rows->Next());
  if (!found) return nullptr;
  MILLRACE_ASSIGN_OR_RETURN(StoredJob stored, ReadJobRow(*rows));
  std::unique_ptr<Entry>& entry = entries_[stored.id];
  // What this transaction has changed already is not in the database yet.
  if (entry == nullptr) {
    entry = std::make_unique<Entry>();
    entry->job = std::move(stored);
  }
  return entry->deleted ? nullptr : &entry->job;
}

absl::StatusOr<StoredJob*> JobTransaction::Find(const std::string& job_id) {
  if (auto found = entries_.find(job_id); found != entries_.end()) {
    return found->second->deleted ? nullptr : &found->second->job;
  }
  return Load(db_->Query(absl::StrCat("SELECT ", kJobColumns, " FROM jobs WHERE id = ?"), job_id));
}

absl::StatusOr<StoredJob*> JobTransaction::FindByRequestId(const std::string& request_id) {
  return Load(db_->Query(absl::StrCat("SELECT ", kJobColumns, " FROM jobs WHERE request_id = ?"),
                         request_id));
}

absl::StatusOr<StoredJob*> JobTransaction::Get(const std::string& job_id) {
  MILLRACE_ASSIGN_OR_RETURN(StoredJob * job, Find(job_id));
  if (job == nullptr) return JobNotFound(job_id);
  return job;
}

absl::StatusOr<std::vector<std::string>> JobTransaction::IdsInStates(
    const std::vector<Job::State>& states) {
  std::vector<std::string> ids;
  for (const Job::State state : states) {
    MILLRACE_ASSIGN_OR_RETURN(
        Rows rows,
        db_->Query("SELECT id FROM jobs WHERE state = ? ORDER BY queue_order", int64_t{state}));
    while (true) {
      MILLRACE_ASSIGN_OR_RETURN(const bool more, rows.Next());
      if (!more) break;
      ids.push_back(rows.Text(0));
    }
  }
  return ids;
}

absl::StatusOr<int64_t> JobTransaction::Count(Job::State state) {
  return db_->Integer("SELECT COUNT(*) FROM jobs WHERE state = ?", 0, int64_t{state});
}

absl::StatusOr<StoredJob*> JobTransaction::Create(StoredJob stored) {
  stored.job.set_name(JobName(stored.id));
  *stored.job.mutable_create_time() = ToTimestamp(absl::Now());
  stored.job.mutable_progress()->set_total_steps(stored.job.spec().train().steps());
  const std::string insert =
      "INSERT INTO jobs (id, request_id, submitted_spec, state, queue_order, needs, "
      "highest_step, record) VALUES (?, ?, ?, 0, 0, ?, 0, x'')";
  const std::string needs = absl::StrJoin(ResourcesOf(stored.job.spec()), "\n");
  if (stored.request_id.empty()) {
    MILLRACE_RETURN_IF_ERROR(
        db_->Run(insert, stored.id, nullptr, Blob{stored.submitted_spec}, needs));
  } else {
    MILLRACE_RETURN_IF_ERROR(
        db_->Run(insert, stored.id, stored.request_id, Blob{stored.submitted_spec}, needs));
  }
  stored.ordinal = db_->last_insert_id();
  auto entry = std::make_unique<Entry>();
  entry->job = std::move(stored);
  StoredJob* job = &entry->job;
  entries_[job->id] = std::move(entry);
  MILLRACE_RETURN_IF_ERROR(Transition(job, Job::QUEUED, v1::REASON_UNSPECIFIED, ""));
  return job;
}

absl::Status JobTransaction::Transition(StoredJob* stored, Job::State to, v1::Reason reason,
                                        absl::string_view message) {
  Job& job = stored->job;
  const Job::State from = job.state();
  if (!IsLegalTransition(from, to)) {
    return IllegalState(stored->id, from, absl::StrCat("made ", StateName(to)));
  }
  const absl::Time now = absl::Now();
  if (to == Job::QUEUED &&
      (from == Job::STATE_UNSPECIFIED || from == Job::PAUSED || from == Job::FAILED)) {
    // Also counts those that this transaction holds unwritten: it queues one job at most.
    MILLRACE_ASSIGN_OR_RETURN(const int64_t highest,
                              db_->Integer("SELECT COALESCE(MAX(queue_order), 0) FROM jobs", 0));
    stored->queue_order = highest + 1;
  }
  if (to == Job::RUNNING && !job.has_start_time()) *job.mutable_start_time() = ToTimestamp(now);
  if (HasEnded(to)) {
    *job.mutable_end_time() = ToTimestamp(now);
    job.mutable_progress()->clear_remaining();
  } else {
    job.clear_end_time();
  }
  job.set_state(to);
  job.set_reason(reason);
  job.set_message(std::string(message));

  v1::JobEvent event;
  *event.mutable_time() = ToTimestamp(now);
  event.mutable_state_change()->set_from(from);
  event.mutable_state_change()->set_to(to);
  event.mutable_state_change()->set_reason(reason);
  event.mutable_state_change()->set_message(std::string(message));
  return Append(stored, std::move(event));
}

absl::Status JobTransaction::Append(StoredJob* stored, v1::JobEvent event) {
  Job& job = stored->job;
  event.set_sequence(job.last_sequence() + 1);
  event.set_attempt(job.attempt());
  if (!event.has_time()) *event.mutable_time() = ToTimestamp(absl::Now());
  MILLRACE_RETURN_IF_ERROR(db_->Run("INSERT INTO events (job, sequence, event) VALUES (?, ?, ?)",
                                    stored->ordinal, event.sequence(),
                                    Blob{event.SerializeAsString()}));
  job.set_last_sequence(event.sequence());
  *job.mutable_update_time() = ToTimestamp(absl::Now());
  entries_.at(stored->id)->events.push_back(std::move(event));
  return absl::OkStatus();
}

absl::Status JobTransaction::Delete(StoredJob* job) {
  entries_.at(job->id)->deleted = true;
  return db_->Run("DELETE FROM jobs WHERE ordinal = ?", job->ordinal);
}

absl::StatusOr<std::optional<StoredAttempt>> JobTransaction::FindAttempt(const StoredJob& job,
                                                                         int32_t attempt) {
  MILLRACE_ASSIGN_OR_RETURN(Rows rows,
                            db_->Query(absl::StrCat("SELECT ", kAttemptColumns,
                                                    " FROM attempts WHERE job = ? AND attempt = ?"),
                                       job.ordinal, int64_t{attempt}));
  MILLRACE_ASSIGN_OR_RETURN(const bool found, rows.Next());
  if (!found) return std::nullopt;
  return ReadAttemptRow(rows);
}

absl::Status JobTransaction::PutAttempt(const StoredJob& job, const StoredAttempt& attempt) {
  return db_->Run(
      "INSERT OR REPLACE INTO attempts (job, attempt, start_micros, end_micros, last_report, "
      "stop_trigger, ended, exit) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
      job.ordinal, int64_t{attempt.attempt}, absl::ToUnixMicros(attempt.start_time),
      attempt.over() ? absl::ToUnixMicros(attempt.end_time) : int64_t{0}, attempt.last_report,
      attempt.stop_trigger, Blob{attempt.ended.SerializeAsString()}, attempt.exit);
}

absl::Status JobTransaction::Write(const Entry& entry) {
  const StoredJob& stored = entry.job;
  Job record = stored.job;
  record.clear_queue_position();
  return db_->Run(
      "UPDATE jobs SET state = ?, queue_order = ?, highest_step = ?, record = ? WHERE ordinal = ?",
      int64_t{record.state()}, stored.queue_order, stored.highest_step,
      Blob{record.SerializeAsString()}, stored.ordinal);
}

absl::Status JobTransaction::Flush() {
  for (auto& [id, entry] : entries_) {
    if (entry->events.empty() && !entry->changed && !entry->deleted) continue;
    if (!entry->deleted) MILLRACE_RETURN_IF_ERROR(Write(*entry));
    committed_.push_back({id, std::move(entry->job.job), std::move(entry->events), entry->deleted});
  }
  entries_.clear();
  return absl::OkStatus();
}

}  // namespace millrace
