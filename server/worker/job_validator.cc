#include "server/worker/job_validator.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/status_macros.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/schedule/planner.h"
#include "engine/train/job_model.h"
#include "engine/train/job_plan.h"
#include "engine/train/job_tokenizer.h"
#include "engine/train/system_memory.h"
#include "engine/train/train_spec.h"
#include "server/base/errors.h"
#include "server/base/resource_names.h"
#include "server/blobs/dataset_store.h"
#include "server/blobs/model_path.h"
#include "server/worker/plan_conversion.h"
#include "server/worker/spec_conversion.h"

namespace millrace {
namespace {

// Of one step, times layers. A schedule has some instructions for each; more would take the
// daemon's memory, and no machine makes such a step in a day.
constexpr int64_t kMostBlockPasses = 100'000;

// Clients take messages of 64 MiB.
constexpr size_t kMostTraceBytes = size_t{60} << 20;

// Adds all that is wrong with the model to `problems`.
std::optional<ModelSpec> CheckModel(const TrainSpec& spec, std::vector<FieldProblem>* problems) {
  // What is not given at all is a problem of the spec.
  if (spec.model_config_json.empty() == spec.model_path.empty()) return std::nullopt;
  const absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = MakeJobTokenizer(spec);
  // A name that stands for nothing is a problem of the spec.
  const bool named = spec.tokenizer.empty() || !spec.tokenizer_path.empty();
  if (!tokenizer.ok() && named) {
    // `field: what is wrong`
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(tokenizer.status().message(), absl::MaxSplits(": ", 1));
    problems->push_back({parts.first, parts.second});
  }
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

absl::Status CheckPasses(const TrainSpec& spec, const ModelSpec& model) {
  const StepShape shape = ChooseStepShape(model, spec.tokens_per_step, spec.tokens_per_micro_batch,
                                          spec.sequence_length, spec.clip_norm > 0, *spec.compute);
  if (shape.micro_batches <= kMostBlockPasses / model.num_layers) return absl::OkStatus();
  return Refuse(
      ErrorReason::kConfigInvalid,
      {{"train.tokens_per_step",
        absl::StrCat(spec.tokens_per_step, " makes ", shape.micro_batches, " micro-batches of ",
                     shape.tokens_per_micro_batch, " tokens through ", model.num_layers,
                     " layers, too many for one step; lower it, or raise "
                     "train.tokens_per_micro_batch")}});
}

// Both budgets lie in the node's memory.
absl::Status CheckBudgets(const TrainSpec& spec, int64_t node_bytes) {
  if (!spec.device_budget_bytes || !spec.host_budget_bytes) return absl::OkStatus();
  if (*spec.device_budget_bytes <= node_bytes - std::min(node_bytes, *spec.host_budget_bytes)) {
    return absl::OkStatus();
  }
  return Refuse(ErrorReason::kConfigInvalid,
                {{"memory.device_budget",
                  absl::StrCat(*spec.device_budget_bytes, " bytes and memory.host_budget (",
                               *spec.host_budget_bytes, ") are together more than this node has (",
                               node_bytes, "); lower one of them, or leave one out")}});
}

// Of PlanJob: `field: what is wrong`.
absl::Status PlanError(const absl::Status& status) {
  if (!absl::IsInvalidArgument(status)) return status;
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(status.message(), absl::MaxSplits(": ", 1));
  if (parts.first == "device") {
    return MakeFieldError(ErrorReason::kProfileUnknown, {{"device", parts.second}});
  }
  return Refuse(ErrorReason::kConfigInvalid, {{parts.first, parts.second}});
}

// Why a job that does not fit is not queued.
absl::Status Insufficient(const JobPlan& plan) {
  const ErrorReason reason = plan.shortfall_field == "memory.device_budget"
                                 ? ErrorReason::kDeviceMemoryInsufficient
                                 : ErrorReason::kHostMemoryInsufficient;
  return WithPreconditionFailure(
      MakeError(reason, absl::StrCat(plan.shortfall_field, ": ", plan.shortfall)),
      ErrorReasonName(reason), absl::StrCat("spec.", plan.shortfall_field), plan.shortfall);
}

absl::Status CheckDataset(const BlobStore& datasets, const std::string& id, const TrainSpec& spec) {
  MILLRACE_ASSIGN_OR_RETURN(const StoredBlob dataset, datasets.Get(id));
  if (!dataset.ready) {
    return Refuse(ErrorReason::kDatasetInvalid,
                  {{"data.train",
                    absl::StrCat("datasets/", id, " is still being uploaded; finish the upload")}});
  }
  // A byte is a token, and each document ends with one more. JSON around the text only makes
  // this too many; the worker counts exactly.
  const int64_t most_tokens = dataset.size_bytes + DocumentCount(dataset);
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

JobValidator::JobValidator(Options options) : options_(std::move(options)) {
  if (options_.cores == 0) {
    options_.cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  }
  if (options_.memory_bytes == 0) options_.memory_bytes = TotalMemoryBytes();
}

PlanTarget JobValidator::TargetOf(const TrainSpec& resolved) const {
  PlanTarget target;
  target.host_memory_bytes = UsableMemoryBytes();
  if (options_.paths) {
    target.calibration_file =
        options_.paths->CpuProfile(NameOf(*resolved.compute), *resolved.threads);
  }
  return target;
}

void JobValidator::Calibrate() {
  const TrainSpec usual = Resolve(TrainSpec(), options_.cores, CpuHasBf16());
  PlanTarget target = TargetOf(usual);
  target.measure = true;
  (void)ResolveTarget(usual, target);
}

int64_t JobValidator::UsableMemoryBytes() const {
  return static_cast<int64_t>(kUsableShareOfMemory * static_cast<double>(options_.memory_bytes));
}

absl::Status JobValidator::FindSources(const v1::JobSpec& spec, JobPaths* paths, std::string* name,
                                       std::vector<FieldProblem>* problems) const {
  // What is no name of a resource is a problem among others.
  const auto take = [problems](const absl::Status& status) {
    if (ReasonOf(status) != ErrorReasonName(ErrorReason::kRequestInvalid)) return status;
    for (const FieldViolation& violation : FieldViolationsOf(status)) {
      problems->push_back({violation.field, violation.description});
    }
    return absl::OkStatus();
  };
  const std::string& from = spec.model().from();
  if (!options_.paths) return absl::OkStatus();
  if (!from.empty()) {
    const absl::StatusOr<NamedModel> model = FindModel(*options_.paths, "model.from", from);
    MILLRACE_RETURN_IF_ERROR(take(model.status()));
    if (model.ok()) {
      paths->model = model->path;
      *name = model->name;
    }
  }
  if (spec.tokenizer().empty() || spec.tokenizer() == "byte") return absl::OkStatus();
  const absl::StatusOr<std::string> tokenizer =
      FindTokenizer(*options_.paths, "tokenizer", spec.tokenizer());
  if (tokenizer.ok()) paths->tokenizer = *tokenizer;
  // The engine knows better what else a tokenizer may be called.
  if (!absl::StrContains(spec.tokenizer(), '/')) return absl::OkStatus();
  return take(tokenizer.status());
}

absl::StatusOr<JobValidator::JudgedSpec> JobValidator::Judge(const v1::JobSpec& spec,
                                                             bool with_dataset) const {
  std::vector<FieldProblem> problems;
  std::string dataset_id;
  if (with_dataset && !spec.data().train().empty()) {
    const absl::StatusOr<std::string> id = ParseDatasetName("data.train", spec.data().train());
    if (id.ok()) {
      dataset_id = *id;
    } else {
      problems.push_back({"data.train", absl::StrCat("`", spec.data().train(),
                                                     "` is no dataset; give datasets/{id}, as "
                                                     "`millrace datasets list` lists them")});
    }
  }
  JobPaths paths;
  paths.data = spec.data().train();
  std::string model_name;
  MILLRACE_RETURN_IF_ERROR(FindSources(spec, &paths, &model_name, &problems));
  TrainSpec train_spec = ToTrainSpec(spec, paths, &problems);
  if (!model_name.empty()) train_spec.model_from = model_name;
  for (FieldProblem& problem : Validate(train_spec)) problems.push_back(std::move(problem));
  std::vector<FieldProblem> model_problems;
  std::optional<ModelSpec> model = CheckModel(train_spec, &model_problems);
  if (!problems.empty()) {
    problems.insert(problems.end(), model_problems.begin(), model_problems.end());
    return Refuse(ErrorReason::kConfigInvalid, problems);
  }
  if (!model_problems.empty()) {
    return Refuse(
        IsUnsupported(model_problems) ? ErrorReason::kModelUnsupported : ErrorReason::kModelInvalid,
        model_problems);
  }
  if (with_dataset) {
    MILLRACE_RETURN_IF_ERROR(CheckDataset(*options_.datasets, dataset_id, train_spec));
  }
  train_spec = Resolve(std::move(train_spec), options_.cores, CpuHasBf16());
  MILLRACE_RETURN_IF_ERROR(CheckPasses(train_spec, *model));
  return JudgedSpec{std::move(train_spec), *std::move(model)};
}

absl::StatusOr<ValidatedSpec> JobValidator::ResolveAndValidate(const v1::JobSpec& spec) {
  MILLRACE_ASSIGN_OR_RETURN(JudgedSpec judged, Judge(spec, /*with_dataset=*/true));
  MILLRACE_RETURN_IF_ERROR(CheckBudgets(judged.spec, options_.memory_bytes));
  // Nobody who submits waits for a measurement; who asks for a plan does.
  const absl::StatusOr<JobPlan> plan = PlanJob(judged.spec, judged.model, TargetOf(judged.spec));
  if (!plan.ok()) return PlanError(plan.status());
  if (!plan->fits) return Insufficient(*plan);
  judged.spec.tokens_per_micro_batch = plan->plan.shape.tokens_per_micro_batch;
  return ValidatedSpec{FillIn(spec, judged.spec), ToProto(*plan)};
}

absl::StatusOr<v1::PlanJobResponse> JobValidator::Plan(const v1::PlanJobRequest& request) {
  if (request.host_memory_bytes() < 0 ||
      (request.host_memory_bytes() > 0 && request.device().empty())) {
    return MakeFieldError(
        ErrorReason::kRequestInvalid,
        {{"host_memory_bytes",
          request.host_memory_bytes() < 0
              ? absl::StrCat(request.host_memory_bytes(), " is negative; give 0 for this node's")
              : "is for a device that is not here; name one, or set memory.host_budget in the job "
                "file"}});
  }
  MILLRACE_ASSIGN_OR_RETURN(const JudgedSpec judged, Judge(request.spec(), /*with_dataset=*/false));
  if (request.device().empty()) {
    MILLRACE_RETURN_IF_ERROR(CheckBudgets(judged.spec, options_.memory_bytes));
  }
  PlanTarget target = TargetOf(judged.spec);
  target.device = request.device();
  target.measure = true;
  target.trace = request.trace();
  if (request.host_memory_bytes() > 0) target.host_memory_bytes = request.host_memory_bytes();
  absl::StatusOr<JobPlan> plan = PlanJob(judged.spec, judged.model, target);
  if (!plan.ok()) return PlanError(plan.status());
  v1::PlanJobResponse response;
  *response.mutable_plan() = ToProto(*plan);
  if (request.trace()) {
    if (plan->trace_json.size() > kMostTraceBytes) {
      return MakeFieldError(
          ErrorReason::kRequestInvalid,
          {{"trace", absl::StrCat("the step has so many parts that its trace takes ",
                                  plan->trace_json.size(),
                                  " bytes, more than a message holds; "
                                  "raise spec.train.tokens_per_micro_batch or lower "
                                  "spec.train.tokens_per_step")}});
    }
    response.set_trace(std::move(plan->trace_json));
  }
  return response;
}

}  // namespace millrace
