// By how much a job does not fit, and which single change would make it fit.
#ifndef MILLRACE_ENGINE_TRAIN_JOB_SHORTFALL_H_
#define MILLRACE_ENGINE_TRAIN_JOB_SHORTFALL_H_

#include <string>

#include "engine/model/model_spec.h"
#include "engine/train/job_step.h"
#include "engine/train/job_target.h"
#include "engine/train/train_spec.h"

namespace millrace {

struct Shortfall {
  std::string text;
  std::string field;  // of the job file, that is to blame
  LeastMemory least;
};

// Of a job that does not fit (JobFits). Every change that the text names has been planned: the job
// with that change alone fits.
Shortfall ExplainShortfall(const TrainSpec& spec, const ModelSpec& model, const JobTarget& target);

// "12.3 GiB", "512 MiB", "1 byte".
std::string BytesText(int64_t bytes);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_TRAIN_JOB_SHORTFALL_H_
