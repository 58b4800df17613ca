// Whether a job can run here, asked before it is queued.
#ifndef MILLRACE_SERVER_JOBS_SPEC_VALIDATOR_H_
#define MILLRACE_SERVER_JOBS_SPEC_VALIDATOR_H_

#include "absl/status/statusor.h"
#include "millrace/v1/job_spec.pb.h"
#include "millrace/v1/plan.pb.h"

namespace millrace {

struct ValidatedSpec {
  // With every default filled in that does not depend on the moment.
  v1::JobSpec spec;
  // How its steps would run on this node, with nothing else on it.
  v1::JobPlan plan;
};

class SpecValidator {
 public:
  virtual ~SpecValidator() = default;

  // What comes of `spec`, or why it cannot run:
  // CONFIG_INVALID, MODEL_INVALID, MODEL_UNSUPPORTED or DATASET_INVALID with all field violations
  // (paths begin with `spec.`), DATASET_NOT_FOUND, HOST_MEMORY_INSUFFICIENT,
  // DEVICE_MEMORY_INSUFFICIENT. Changes nothing. Resolving a resolved spec gives it back unchanged.
  // Any thread, several at once; the job manager holds no lock while it waits.
  virtual absl::StatusOr<ValidatedSpec> ResolveAndValidate(const v1::JobSpec& spec) = 0;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_JOBS_SPEC_VALIDATOR_H_
