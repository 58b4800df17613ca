// What makes a submission valid in itself, and the same as an earlier one.
#ifndef MILLRACE_SERVER_JOBS_SUBMISSION_H_
#define MILLRACE_SERVER_JOBS_SUBMISSION_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "millrace/v1/job_service.pb.h"
#include "server/jobs/job_store.h"
#include "server/jobs/job_transaction.h"

namespace millrace {

// The form of job_id and request_id, and that there is a spec; REQUEST_INVALID or CONFIG_INVALID.
absl::Status CheckCreateRequest(const v1::CreateJobRequest& request);

// Equal for equal specs, whatever the order of their map entries.
std::string SpecFingerprint(const v1::JobSpec& spec);

// The job that an earlier call with the same request_id or job_id made; null when there is none.
// ID_TAKEN when there is one of another spec, or when request_id and job_id name two jobs.
// `submission` has request_id and submitted_spec.
absl::StatusOr<std::unique_ptr<StoredJob>> FindEarlierSubmission(
    JobStore* store, const v1::CreateJobRequest& request, const StoredJob& submission);
absl::StatusOr<StoredJob*> FindEarlierSubmission(JobTransaction& transaction,
                                                 const v1::CreateJobRequest& request,
                                                 const StoredJob& submission);

// The request's job_id or, where it has none, one made of the spec's name and a random ending.
absl::StatusOr<std::string> ChooseJobId(JobTransaction& transaction,
                                        const v1::CreateJobRequest& request);

}  // namespace millrace

#endif  // MILLRACE_SERVER_JOBS_SUBMISSION_H_
