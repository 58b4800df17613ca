// What the store keeps of a job and of its attempts.
#ifndef MILLRACE_SERVER_JOBS_STORED_JOB_H_
#define MILLRACE_SERVER_JOBS_STORED_JOB_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "google/protobuf/timestamp.pb.h"
#include "millrace/v1/job_service.pb.h"
#include "millrace/v1/worker.pb.h"

namespace millrace {

struct StoredJob {
  // Grows from job to job; never used again.
  int64_t ordinal = 0;
  std::string id;
  std::string request_id;
  // Deterministic bytes of the spec as it was submitted, to recognize the same submission.
  std::string submitted_spec;
  // Lowest starts first. Kept when a job is queued again by itself, so that it goes before those
  // that came later.
  int64_t queue_order = 0;
  // Highest step ever reported; one beyond it is progress.
  int64_t highest_step = 0;
  // queue_position is not kept: it is worked out when read.
  v1::Job job;
};

struct StoredAttempt {
  int32_t attempt = 0;
  absl::Time start_time;
  // InfinitePast while its worker lives.
  absl::Time end_time = absl::InfinitePast();
  // Highest sequence of a stored report.
  int64_t last_report = 0;
  // PAUSE or SHUTDOWN once it was asked to stop.
  std::string stop_trigger;
  // OUTCOME_UNSPECIFIED when the worker has not said how it ended.
  v1::WorkerReport::Ended ended;
  // How the process ended, for a person.
  std::string exit;

  bool over() const { return end_time != absl::InfinitePast(); }
};

// What one committed change did to one job.
struct Committed {
  std::string job_id;
  // After the change; last known when deleted.
  v1::Job job;
  std::vector<v1::JobEvent> events;
  bool deleted = false;
};

google::protobuf::Timestamp ToTimestamp(absl::Time time);

}  // namespace millrace

#endif  // MILLRACE_SERVER_JOBS_STORED_JOB_H_
