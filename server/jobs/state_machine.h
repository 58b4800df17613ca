// The life of a job, as data. Job.State in proto/millrace/v1/job_service.proto says what each state
// means; the table in state_machine.cc says what may follow it.
//
//   QUEUED -> PREPARING -> RUNNING -> SUCCEEDED | FAILED
//   RUNNING -> PAUSING -> PAUSED -> QUEUED
//   any of these, not ended -> CANCELLING -> CANCELLED
#ifndef MILLRACE_SERVER_JOBS_STATE_MACHINE_H_
#define MILLRACE_SERVER_JOBS_STATE_MACHINE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "millrace/v1/job_service.pb.h"

namespace millrace {

// Whether `to` may follow `from`. STATE_UNSPECIFIED as `from` is a job that is being created.
bool IsLegalTransition(v1::Job::State from, v1::Job::State to);

// SUCCEEDED, FAILED, CANCELLED.
bool HasEnded(v1::Job::State state);

// Whether a worker process may be alive: PREPARING, RUNNING, PAUSING, CANCELLING.
bool HasWorker(v1::Job::State state);

// `RUNNING` and so on.
std::string StateName(v1::Job::State state);

// FAILED_PRECONDITION ILLEGAL_STATE. `action` completes "jobs/x is RUNNING and cannot be …".
absl::Status IllegalState(absl::string_view job_id, v1::Job::State state, absl::string_view action);

}  // namespace millrace

#endif  // MILLRACE_SERVER_JOBS_STATE_MACHINE_H_
