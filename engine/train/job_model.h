// The model that a job's config describes, or that it begins with.
#ifndef MILLRACE_ENGINE_TRAIN_JOB_MODEL_H_
#define MILLRACE_ENGINE_TRAIN_JOB_MODEL_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/base/field_problem.h"
#include "engine/model/model_spec.h"
#include "engine/train/train_spec.h"

namespace millrace {

// `vocab_size`: the tokenizer's, if it is known; a model to begin with may have more, as many are
// padded. All that is wrong goes to `problems`, by the job
// file's field paths; nullopt when no model can be made. `notes`, where given, get what training
// leaves out of the config of a model to begin with.
std::optional<ModelSpec> MakeJobModel(const TrainSpec& spec, std::optional<int64_t> vocab_size,
                                      std::vector<FieldProblem>* problems,
                                      std::vector<FieldProblem>* notes = nullptr);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_TRAIN_JOB_MODEL_H_
