// Judges a job before it is queued, with the checks that its worker will make (names and numbers,
// the model, the dataset, and memory), and tells how it would run.
#ifndef MILLRACE_SERVER_WORKER_JOB_VALIDATOR_H_
#define MILLRACE_SERVER_WORKER_JOB_VALIDATOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/model/model_spec.h"
#include "engine/train/job_target.h"
#include "engine/train/train_spec.h"
#include "server/base/paths.h"
#include "server/blobs/blob_store.h"
#include "server/jobs/job_planner.h"
#include "server/jobs/spec_validator.h"
#include "server/worker/spec_conversion.h"

namespace millrace {

class JobValidator : public SpecValidator, public JobPlanner {
 public:
  struct Options {
    // Outlives the validator.
    const BlobStore* datasets = nullptr;
    // Compute threads of a job that does not say; 0 is all cores.
    int64_t cores = 0;
    // Memory of the node; 0 is what it has.
    int64_t memory_bytes = 0;
    // Where models, tokenizers and the processor's profiles are kept; without it there are none of
    // the first, and a processor of middling speed is assumed.
    std::optional<DataPaths> paths;
  };

  explicit JobValidator(Options options);

  // Measures the processor for jobs that say nothing of threads and compute type, or reads what was
  // measured before. Takes a second or two; plans that are asked for meanwhile wait.
  void Calibrate();

  absl::StatusOr<ValidatedSpec> ResolveAndValidate(const v1::JobSpec& spec) override;
  absl::StatusOr<v1::PlanJobResponse> Plan(const v1::PlanJobRequest& request) override;

 private:
  struct JudgedSpec {
    TrainSpec spec;  // resolved
    ModelSpec model;
  };

  // Finds the files of the model and the tokenizer that a job names, and says in `name` which
  // checkpoint its model is.
  absl::Status FindSources(const v1::JobSpec& spec, JobPaths* paths, std::string* name,
                           std::vector<FieldProblem>* problems) const;
  // All but memory; the dataset only when asked.
  absl::StatusOr<JudgedSpec> Judge(const v1::JobSpec& spec, bool with_dataset) const;
  // For this node, unless the target is changed.
  PlanTarget TargetOf(const TrainSpec& resolved) const;
  // What a job may take of this node when nothing else is on it.
  int64_t UsableMemoryBytes() const;

  Options options_;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_WORKER_JOB_VALIDATOR_H_
