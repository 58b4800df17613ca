// What fixes the numbers of a run: everything that, if changed, would make another run of it. It is
// saved with each checkpoint, and a job that resumes must agree with it.
#ifndef MILLRACE_ENGINE_TRAIN_RUN_IDENTITY_H_
#define MILLRACE_ENGINE_TRAIN_RUN_IDENTITY_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "engine/model/model_spec.h"
#include "engine/schedule/plan.h"
#include "engine/train/train_spec.h"

namespace millrace {

// Field path of the job file to value as JSON text. `data.train` stands for the SHA-256 of the
// tokens, kWeightsField for that of the weights that a run with `model.from` began with; whoever
// reads those adds it. `train.steps` is left out where the learning rate does not depend on it.
using RunIdentity = std::map<std::string, std::string>;

inline constexpr char kWeightsField[] = "model.weights";

// `spec` is resolved, with its micro-batch; of `shape` the chunks and tiles of the head count.
RunIdentity IdentityOf(const TrainSpec& spec, const ModelSpec& model,
                       const std::string& data_sha256, const StepShape& shape);

// FAILED_PRECONDITION names each field that differs, with both values. Configs of the same model do
// not differ, as versions of this program may write them in their own forms.
absl::Status CheckSameRun(const RunIdentity& checkpoint, const RunIdentity& job,
                          int64_t checkpoint_step);

// Takes threads, micro-batch, the head's chunks and tiles, compute type and decay steps from a
// checkpoint's identity where `spec` leaves them out.
void AdoptDecisions(const RunIdentity& checkpoint, TrainSpec* spec);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_TRAIN_RUN_IDENTITY_H_
