#include "engine/train/text_evaluator.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/data/batch.h"
#include "engine/data/packing.h"
#include "engine/data/token_store.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/exec/step_runner.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/schedule/builder.h"
#include "engine/schedule/planner.h"
#include "engine/schedule/step_shape.h"

namespace millrace {
namespace {

constexpr int64_t kUsualLength = 2048;
// Tokens that pass through the model at once, where sequences are shorter.
constexpr int64_t kBatchTokens = 2048;

absl::StatusOr<int64_t> SequenceLength(const EvaluateOptions& options, const ModelSpec& spec) {
  if (options.sequence_length == 0) return std::min(kUsualLength, spec.max_positions);
  if (options.sequence_length >= 2 && options.sequence_length <= spec.max_positions) {
    return options.sequence_length;
  }
  return absl::InvalidArgumentError(absl::StrCat("sequence_length: ", options.sequence_length,
                                                 " is not between 2 and the ", spec.max_positions,
                                                 " positions of the model"));
}

// Forward passes of a model over batches of one shape.
class Evaluator {
 public:
  Evaluator(const InferenceModel& model, int64_t sequence_length)
      : model_(model),
        ops_(CreateCpuOps(model.state->compute_dtype(), model.pool.get())),
        sequences_(std::max<int64_t>(1, kBatchTokens / sequence_length)),
        length_(sequence_length) {}

  int64_t sequences_per_batch() const { return sequences_; }

  absl::Status Prepare(const std::atomic<bool>* cancelled) {
    const int64_t tokens = sequences_ * length_;
    const StepShape shape = ChooseStepShape(model_.spec, tokens, tokens, length_, /*clip=*/false,
                                            model_.state->compute_dtype());
    ScheduledModel scheduled = MakeScheduledModel(model_.spec, *model_.state, *ops_, shape);
    MILLRACE_ASSIGN_OR_RETURN(
        Plan plan, MakePlan(scheduled, shape, /*unified=*/true, /*budget=*/size_t{1} << 50));
    MILLRACE_ASSIGN_OR_RETURN(device_,
                              CreateCpuDevice(BuildForwardSchedule(scheduled, plan).device_bytes));
    MILLRACE_ASSIGN_OR_RETURN(
        runner_, StepRunner::CreateForEvaluation(std::move(scheduled), std::move(plan),
                                                 device_.get(), ops_.get(), model_.pool.get(),
                                                 model_.state.get(), cancelled));
    return absl::OkStatus();
  }

  absl::StatusOr<double> LossSum(const MicroBatch& batch) {
    return runner_->EvaluateLossSum(
        {batch.inputs, batch.targets, batch.positions, batch.boundaries});
  }

 private:
  const InferenceModel& model_;
  std::unique_ptr<Ops> ops_;
  const int64_t sequences_, length_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<StepRunner> runner_;
};

}  // namespace

absl::StatusOr<EvaluateFigures> EvaluateTexts(
    const InferenceModel& model, const EvaluateOptions& options, const std::atomic<bool>* cancelled,
    absl::FunctionRef<absl::Status(const EvaluateFigures&)> progress) {
  MILLRACE_ASSIGN_OR_RETURN(const int64_t length, SequenceLength(options, model.spec));
  MILLRACE_ASSIGN_OR_RETURN(
      const TokenStore store,
      TokenStore::Prepare(
          options.dataset, *model.tokenizer, options.token_folder, [cancelled](int64_t, int64_t) {
            return cancelled != nullptr && cancelled->load() ? absl::CancelledError("cancelled")
                                                             : absl::OkStatus();
          }));
  const Packing packing(store, length);
  EvaluateFigures figures;
  figures.sequences_total = packing.sequences();
  if (figures.sequences_total == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("sequence_length: the dataset has ", store.size(), " tokens, less than the ",
                     length + 1, " of one sequence and what follows it",
                     store.size() > 2 ? absl::StrCat("; give at most ", store.size() - 1) : ""));
  }
  if (options.max_sequences > 0) {
    figures.sequences_total = std::min(figures.sequences_total, options.max_sequences);
  }
  Evaluator evaluator(model, length);
  MILLRACE_RETURN_IF_ERROR(evaluator.Prepare(cancelled));
  const auto start = std::chrono::steady_clock::now();
  while (figures.sequences_done < figures.sequences_total) {
    const int64_t end =
        std::min(figures.sequences_done + evaluator.sequences_per_batch(), figures.sequences_total);
    MicroBatch batch;
    for (int64_t i = figures.sequences_done; i < end; ++i) packing.Append(i, &batch);
    MILLRACE_ASSIGN_OR_RETURN(const double sum, evaluator.LossSum(batch));
    figures.loss_sum += sum;
    figures.tokens += batch.target_count;
    figures.sequences_done = end;
    figures.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    MILLRACE_RETURN_IF_ERROR(progress(figures));
  }
  return figures;
}

}  // namespace millrace
