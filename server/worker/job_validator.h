// Judges a job before it is queued, with the checks that its worker will make: names and numbers,
// the model, the dataset, and memory.
#ifndef MILLRACE_SERVER_WORKER_JOB_VALIDATOR_H_
#define MILLRACE_SERVER_WORKER_JOB_VALIDATOR_H_

#include <cstdint>

#include "server/blobs/dataset_store.h"
#include "server/jobs/spec_validator.h"

namespace millrace {

class JobValidator : public SpecValidator {
 public:
  struct Options {
    // Outlives the validator.
    const DatasetStore* datasets = nullptr;
    // Compute threads of a job that does not say; 0 is all cores.
    int64_t cores = 0;
    // Memory that a job may plan with; 0 is what the node has.
    int64_t memory_bytes = 0;
  };

  explicit JobValidator(Options options);

  absl::StatusOr<ValidatedSpec> ResolveAndValidate(const v1::JobSpec& spec) override;

 private:
  Options options_;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_WORKER_JOB_VALIDATOR_H_
