#include "server/worker/job_validator.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status_macros.h"
#include "engine/data/tokenizer.h"
#include "engine/model/families.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/schedule/planner.h"
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

struct CheckedModel {
  std::optional<ModelSpec> spec;
  std::vector<FieldProblem> problems;
  bool unsupported = false;
};

CheckedModel CheckModel(const TrainSpec& spec) {
  CheckedModel result;
  // What is not given at all is a problem of the spec.
  if (spec.model_config_json.empty()) return result;
  const nlohmann::json config = nlohmann::json::parse(spec.model_config_json);
  const absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = MakeTokenizer(spec.tokenizer);
  const std::optional<int64_t> vocab_size =
      tokenizer.ok() ? std::optional((*tokenizer)->vocab_size()) : std::nullopt;
  absl::StatusOr<ModelSpec> model = ParseModelConfig(config, vocab_size, &result.problems);
  for (FieldProblem& problem : result.problems) {
    result.unsupported = result.unsupported || problem.field == "model_type";
    problem.field = absl::StrCat("model.config.", problem.field);
  }
  if (!model.ok()) {
    if (result.problems.empty()) {
      result.problems.push_back({"model.config", std::string(model.status().message())});
    }
    return result;
  }
  if (spec.sequence_length > model->max_positions) {
    result.problems.push_back(
        {"data.sequence_length",
         absl::StrCat(spec.sequence_length, " is more than the model's max_position_embeddings (",
                      model->max_positions, "); lower it, or raise max_position_embeddings")});
  }
  result.spec = *std::move(model);
  return result;
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
  if (options_.memory_bytes == 0) options_.memory_bytes = NodeMemoryBytes();
}

absl::StatusOr<v1::JobSpec> JobValidator::ResolveAndValidate(const v1::JobSpec& spec) {
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
  CheckedModel model = CheckModel(train_spec);
  if (!problems.empty()) {
    problems.insert(problems.end(), model.problems.begin(), model.problems.end());
    return Refuse(ErrorReason::kConfigInvalid, problems);
  }
  if (!model.problems.empty()) {
    return Refuse(model.unsupported ? ErrorReason::kModelUnsupported : ErrorReason::kModelInvalid,
                  model.problems);
  }
  MILLRACE_RETURN_IF_ERROR(CheckDataset(*options_.datasets, dataset_id, train_spec));

  train_spec = Resolve(std::move(train_spec), options_.cores, CpuHasBf16());
  const StepShape shape =
      ChooseStepShape(*model.spec, train_spec.tokens_per_step, train_spec.tokens_per_micro_batch,
                      train_spec.sequence_length, train_spec.clip_norm > 0);
  train_spec.tokens_per_micro_batch = shape.tokens_per_micro_batch;
  if (shape.micro_batches * model.spec->num_layers > kMostBlockPasses) {
    return Refuse(ErrorReason::kConfigInvalid,
                  {{"train.tokens_per_step",
                    absl::StrCat(train_spec.tokens_per_step, " makes ", shape.micro_batches,
                                 " micro-batches of ", shape.tokens_per_micro_batch,
                                 " tokens through ", model.spec->num_layers,
                                 " layers, too many for one step; lower it, or raise "
                                 "train.tokens_per_micro_batch")}});
  }
  MILLRACE_RETURN_IF_ERROR(CheckMemory(train_spec, *model.spec, shape, options_.memory_bytes));
  return FillIn(spec, train_spec);
}

}  // namespace millrace
