#include "server/worker/job_validator.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status_macros.h"
#include "engine/data/tokenizer.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/schedule/planner.h"
#include "engine/train/job_model.h"
#include "engine/train/system_memory.h"
#include "engine/train/train_spec.h"
#include "server/base/errors.h"
#include "server/base/resource_names.h"
#include "server/worker/memory_needs.h"
#include "server/worker/spec_conversion.h"

namespace millrace {
namespace {

// Of one step, times layers. A schedule has some instructions for each; more would take the
// daemon's memory, and no machine makes such a step in a day.
constexpr int64_t kMostBlockPasses = 100'000;

// Adds all that is wrong with the model to `problems`.
std::optional<ModelSpec> CheckModel(const TrainSpec& spec, std::vector<FieldProblem>* problems) {
  // What is not given at all is a problem of the spec.
  if (spec.model_config_json.empty()) return std::nullopt;
  const absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = MakeTokenizer(spec.tokenizer);
  return MakeJobModel(
      spec, tokenizer.ok() ? std::optional((*tokenizer)->vocab_size()) : std::nullopt, problems);
}

bool IsUnsupported(const std::vector<FieldProblem>& problems) {
  return std::any_of(problems.begin(), problems.end(), [](const FieldProblem& problem) {
    return problem.field == "model.config.model_type";
  });
}

absl::Status Refuse(ErrorReason reason, const std::vector<FieldProblem>& problems) {
  std::vector<FieldViolation> violations;
  for (const FieldProblem& problem : problems) {
    violations.push_back({absl::StrCat("spec.", problem.field), problem.message});
  }
  return MakeFieldError(reason, violations);
}

absl::Status CheckDataset(const DatasetStore& datasets, const std::string& id,
                          const TrainSpec& spec) {
  MILLRACE_ASSIGN_OR_RETURN(const Dataset dataset, datasets.Get(id));
  if (!dataset.ready) {
    return Refuse(ErrorReason::kDatasetInvalid,
                  {{"data.train",
                    absl::StrCat("datasets/", id, " is still being uploaded; finish the upload")}});
  }
  // A byte is a token, and each document ends with one more. JSON around the text only makes
  // this too many; the worker counts exactly.
  const int64_t most_tokens = dataset.size_bytes + dataset.document_count;
  const int64_t sequences = spec.eval_fraction > 0 ? 2 : 1;
  const int64_t needed = sequences * (spec.sequence_length + 1);
  if (most_tokens < needed) {
    return Refuse(ErrorReason::kDatasetInvalid,
                  {{"data.sequence_length",
                    absl::StrCat(spec.sequence_length, " is too long for datasets/", id, ", whose ",
                                 most_tokens, " tokens do not make ",
                                 sequences == 2 ? "a sequence for training and one for evaluation"
                                                : "one sequence",
                                 " (", needed, "); lower it or add text")}});
  }
  return absl::OkStatus();
}

}  // namespace

JobValidator::JobValidator(Options options) : options_(options) {
  if (options_.cores == 0) {
    options_.cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  }
  if (options_.memory_bytes == 0) options_.memory_bytes = TotalMemoryBytes();
}

absl::StatusOr<ValidatedSpec> JobValidator::ResolveAndValidate(const v1::JobSpec& spec) {
  std::vector<FieldProblem> problems;
  std::string dataset_id;
  if (!spec.data().train().empty()) {
    const absl::StatusOr<std::string> id = ParseDatasetName("data.train", spec.data().train());
    if (id.ok()) {
      dataset_id = *id;
    } else {
      problems.push_back({"data.train", absl::StrCat("`", spec.data().train(),
                                                     "` is no dataset; give datasets/{id}, as "
                                                     "`millrace datasets list` lists them")});
    }
  }
  TrainSpec train_spec = ToTrainSpec(spec, spec.data().train(), &problems);
  for (FieldProblem& problem : Validate(train_spec)) problems.push_back(std::move(problem));
  std::vector<FieldProblem> model_problems;
  const std::optional<ModelSpec> model = CheckModel(train_spec, &model_problems);
  if (!problems.empty()) {
    problems.insert(problems.end(), model_problems.begin(), model_problems.end());
    return Refuse(ErrorReason::kConfigInvalid, problems);
  }
  if (!model_problems.empty()) {
    return Refuse(
        IsUnsupported(model_problems) ? ErrorReason::kModelUnsupported : ErrorReason::kModelInvalid,
        model_problems);
  }
  MILLRACE_RETURN_IF_ERROR(CheckDataset(*options_.datasets, dataset_id, train_spec));

  train_spec = Resolve(std::move(train_spec), options_.cores, CpuHasBf16());
  const StepShape shape =
      ChooseStepShape(*model, train_spec.tokens_per_step, train_spec.tokens_per_micro_batch,
                      train_spec.sequence_length, train_spec.clip_norm > 0, *train_spec.compute);
  train_spec.tokens_per_micro_batch = shape.tokens_per_micro_batch;
  if (shape.micro_batches > kMostBlockPasses / model->num_layers) {
    return Refuse(ErrorReason::kConfigInvalid,
                  {{"train.tokens_per_step",
                    absl::StrCat(train_spec.tokens_per_step, " makes ", shape.micro_batches,
                                 " micro-batches of ", shape.tokens_per_micro_batch,
                                 " tokens through ", model->num_layers,
                                 " layers, too many for one step; lower it, or raise "
                                 "train.tokens_per_micro_batch")}});
  }
  MILLRACE_RETURN_IF_ERROR(CheckMemory(train_spec, *model, shape, options_.memory_bytes));
  return ValidatedSpec{FillIn(spec, train_spec), {}};
}

}  // namespace millrace
