// Whether a job can run here, asked before it is queued.
#ifndef MILLRACE_SERVER_JOBS_SPEC_VALIDATOR_H_
#define MILLRACE_SERVER_JOBS_SPEC_VALIDATOR_H_

#include "absl/status/statusor.h"
#include "millrace/v1/job_spec.pb.h"

namespace millrace {

class SpecValidator {
 public:
  virtual ~SpecValidator() = default;

  // `spec` with every default filled in that does not depend on the moment, or why it cannot run:
  // CONFIG_INVALID, MODEL_INVALID, MODEL_UNSUPPORTED or DATASET_INVALID with all field violations
  // (paths begin with `spec.`), DATASET_NOT_FOUND, HOST_MEMORY_INSUFFICIENT,
  // DEVICE_MEMORY_INSUFFICIENT. Changes nothing. Resolving a resolved spec gives it back unchanged.
  // Any thread, several at once; the job manager holds no lock while it waits.
  virtual absl::StatusOr<v1::JobSpec> ResolveAndValidate(const v1::JobSpec& spec) = 0;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_JOBS_SPEC_VALIDATOR_H_
