#include "engine/train/job_step.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/base/status_macros.h"
#include "engine/exec/step_runner.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/state/host_state.h"

namespace millrace {
namespace {

// What the process takes beside everything that is accounted for: program, libraries, stacks, the
// kernels that matrix libraries compile.
constexpr int64_t kRuntimeBytes = int64_t{160} << 20;
// Share of a card's memory that the head's logits may take where it has plenty.
constexpr int64_t kHeadShare = 128;
// Smaller micro-batches are not worth their instructions.
constexpr int64_t kFewestTokens = 256;

size_t Left(int64_t budget, int64_t taken) {
  return budget > taken ? static_cast<size_t>(budget - taken) : 0;
}

}  // namespace

JobStep::JobStep(const TrainSpec& spec, const ModelSpec& model, const JobTarget& target,
                 const StepShape& shape)
    : target_(&target), shape_(shape) {
  std::vector<SlabLayout> layouts = MakeSlabLayouts(model);
  for (const MemoryPool& pool :
       HostStateMemory(layouts, spec.recipe, target.compute, spec.optimizer)) {
    host_memory_.push_back({pool.purpose, static_cast<size_t>(pool.bytes)});
  }
  // Ids, targets and positions of a step.
  const int64_t data_bytes = spec.tokens_per_step * 3 * static_cast<int64_t>(sizeof(int32_t));
  host_memory_.push_back({"data", static_cast<size_t>(data_bytes)});
  host_memory_.push_back({"runtime", static_cast<size_t>(kRuntimeBytes)});

  request_.unified = target.unified;
  request_.profile = &target.profile;
  request_.update = UpdateWorkOf(layouts, spec.recipe, target.compute, spec.optimizer);
  request_.choices = spec.plan;
  request_.device_budget_bytes = static_cast<size_t>(target.device_bytes);
  request_.host_budget_bytes = Left(target.host_bytes, host_bytes());
  if (target.own()) request_.total_budget_bytes = request_.host_budget_bytes;
  const int threads = target.own() ? target.threads : 1;
  model_ = MakeScheduledModel(
      model, std::move(layouts), target.compute,
      CpuOpsWorkspaceBytes(MakeOpsLimits(model, shape), target.compute, threads));
}

int64_t JobStep::host_bytes() const {
  int64_t bytes = 0;
  for (const MemoryItem& item : host_memory_) bytes += static_cast<int64_t>(item.bytes);
  return bytes;
}

absl::Status JobStep::CheckChoices() const {
  return millrace::CheckChoices(request_.choices, model_, shape_);
}

bool JobStep::Fits() const {
  return host_bytes() <= target_->host_bytes && AnyPlanFits(model_, shape_, request_);
}

std::vector<int64_t> MultiplesDividing(int64_t whole, int64_t part) {
  std::vector<int64_t> found;
  if (whole % part != 0) return found;
  // A step may have some 10^12 tokens: only as far as the root.
  const int64_t count = whole / part;
  for (int64_t n = 1; n * n <= count; ++n) {
    if (count % n != 0) continue;
    found.push_back(part * n);
    if (n * n != count) found.push_back(part * (count / n));
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<StepShape> ShapesOf(const TrainSpec& spec, const ModelSpec& model,
                                const JobTarget& target,
                                std::optional<int64_t> tokens_per_micro_batch) {
  const auto shape_with = [&](std::optional<int64_t> tokens, int64_t head_bytes) {
    StepShape shape = ChooseStepShape(model, spec.tokens_per_step, tokens, spec.sequence_length,
                                      spec.clip_norm > 0, target.compute, head_bytes);
    shape.z_loss = spec.z_loss;
    if (spec.head_token_chunk && spec.head_vocab_tile) {
      shape.token_chunk = *spec.head_token_chunk;
      shape.vocab_tile = *spec.head_vocab_tile;
    } else if (spec.plan.head == HeadPlacement::kTiled) {
      TileVocabulary(model, &shape);
    }
    return shape;
  };
  if (!tokens_per_micro_batch) tokens_per_micro_batch = spec.tokens_per_micro_batch;
  std::vector<int64_t> sizes = {
      shape_with(tokens_per_micro_batch, kHeadBytes).tokens_per_micro_batch};
  if (!tokens_per_micro_batch) {
    const std::vector<int64_t> all = MultiplesDividing(spec.tokens_per_step, spec.sequence_length);
    for (auto size = all.rbegin(); size != all.rend(); ++size) {
      if (*size < sizes.front() && *size >= std::min(kFewestTokens, spec.tokens_per_step)) {
        sizes.push_back(*size);
      }
    }
  }
  std::vector<StepShape> shapes;
  for (int64_t size : sizes) {
    const StepShape usual = shape_with(size, kHeadBytes);
    if (!target.own() && spec.plan.head != HeadPlacement::kTiled) {
      const StepShape large =
          shape_with(size, std::max(kHeadBytes, target.device_bytes / kHeadShare));
      if (large.token_chunk != usual.token_chunk || large.vocab_tile != usual.vocab_tile) {
        shapes.push_back(large);
      }
    }
    shapes.push_back(usual);
  }
  return shapes;
}

absl::StatusOr<std::optional<PlannedJobStep>> BestStep(const TrainSpec& spec,
                                                       const ModelSpec& model,
                                                       const JobTarget& target,
                                                       const std::vector<StepShape>& shapes) {
  std::optional<PlannedJobStep> best;
  for (const StepShape& shape : shapes) {
    if (best && best->step.shape().tokens_per_micro_batch != shape.tokens_per_micro_batch) break;
    JobStep step(spec, model, target, shape);
    if (!step.Fits()) continue;
    MILLRACE_ASSIGN_OR_RETURN(PlannedStep planned, step.Plan());
    if (best && best->seconds() <= planned.simulation.seconds) continue;
    best.emplace(PlannedJobStep{std::move(step), std::move(planned)});
  }
  return best;
}

bool JobFits(const TrainSpec& spec, const ModelSpec& model, const JobTarget& target) {
  for (const StepShape& shape : ShapesOf(spec, model, target, std::nullopt)) {
    if (JobStep(spec, model, target, shape).Fits()) return true;
  }
  return false;
}

}  // namespace millrace
