#include "engine/schedule/planner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/schedule/plan_search.h"

namespace millrace {
namespace {

absl::Status FieldError(absl::string_view field, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat("memory.plan.", field, ": ", message));
}

std::string LeastMessage(const LeastMemory& least, const StepShape& shape,
                         const PlanRequest& request) {
  if (least.device_bytes > request.device_budget_bytes) {
    return absl::StrCat("a step needs at least ", least.device_bytes, " bytes of device memory, ",
                        least.device_bytes - request.device_budget_bytes,
                        " more than the budget of ", request.device_budget_bytes,
                        "; raise memory.device_budget, or lower train.tokens_per_micro_batch (",
                        shape.tokens_per_micro_batch, ") or data.sequence_length (",
                        shape.longest_document, ")");
  }
  if (least.host_bytes <= request.host_budget_bytes) {
    return absl::StrCat(
        "a step needs at least ", least.total_bytes,
        " bytes for the device, gradients and layer inputs together, ",
        least.total_bytes - request.total_budget_bytes, " more than the ",
        request.total_budget_bytes, " that are left; lower train.tokens_per_micro_batch (",
        shape.tokens_per_micro_batch, ") or data.sequence_length (", shape.longest_document, ")");
  }
  return absl::StrCat("a step needs at least ", least.host_bytes,
                      " bytes of host memory for gradients and layer inputs, ",
                      least.host_bytes - std::min(least.host_bytes, request.host_budget_bytes),
                      " more than the ", request.host_budget_bytes,
                      " that the budget leaves; raise memory.host_budget or memory.device_budget");
}

}  // namespace

absl::Status CheckChoices(const PlanChoices& choices, const ScheduledModel& model,
                          const StepShape& shape) {
  const int64_t blocks = model.num_blocks();
  if (choices.resident_units && (*choices.resident_units < 0 || *choices.resident_units > blocks)) {
    return FieldError("resident_units",
                      absl::StrCat(*choices.resident_units, " blocks cannot stay on the device; ",
                                   "the model has ", blocks, " blocks, set 0 to ", blocks));
  }
  if (choices.weight_slots && *choices.weight_slots < 2) {
    return FieldError("weight_slots",
                      absl::StrCat(*choices.weight_slots, " are too few: one is computed with ",
                                   "while the other is filled; set at least 2"));
  }
  if (choices.weight_slots && *choices.weight_slots > std::max<int64_t>(2, blocks)) {
    return FieldError("weight_slots",
                      absl::StrCat(*choices.weight_slots, " are more than the model's ", blocks,
                                   " blocks; set at most ", std::max<int64_t>(2, blocks)));
  }
  if (choices.head == HeadPlacement::kTiled && shape.vocab_tile == 0) {
    return FieldError("head", "tiles need a vocabulary larger than a tile");
  }
  if (choices.head == HeadPlacement::kTiled && choices.order == Order::kBatchMajor) {
    return FieldError("head",
                      "tiles are streamed once a step and meet all micro-batches, which is "
                      "layer-major; set memory.plan.order to layer_major or the head to whole");
  }
  return absl::OkStatus();
}

absl::StatusOr<PlannedStep> PlanStep(const ScheduledModel& model, const StepShape& shape,
                                     const PlanRequest& request) {
  MILLRACE_RETURN_IF_ERROR(CheckChoices(request.choices, model, shape));
  PlanSearch search(model, shape, request);
  std::optional<PlannedStep> step = search.Run();
  if (!step) return absl::ResourceExhaustedError(LeastMessage(search.Least(), shape, request));
  return *std::move(step);
}

bool AnyPlanFits(const ScheduledModel& model, const StepShape& shape, const PlanRequest& request) {
  return CheckChoices(request.choices, model, shape).ok() &&
         PlanSearch(model, shape, request).AnyFits();
}

absl::StatusOr<LeastMemory> LeastMemoryOf(const ScheduledModel& model, const StepShape& shape,
                                          const PlanRequest& request) {
  MILLRACE_RETURN_IF_ERROR(CheckChoices(request.choices, model, shape));
  return PlanSearch(model, shape, request).Least();
}

absl::StatusOr<Plan> MakePlan(const ScheduledModel& model, const StepShape& shape, bool unified,
                              size_t device_budget_bytes, const PlanChoices& choices) {
  const PlanRequest request{
      .unified = unified,
      .device_budget_bytes = device_budget_bytes,
      .choices = choices,
      .profile = &MiddlingProcessor(),
      .update = UpdateWorkOf(model.layouts, Recipe::kFull, model.compute_dtype)};
  MILLRACE_ASSIGN_OR_RETURN(PlannedStep step, PlanStep(model, shape, request));
  return std::move(step.plan);
}

}  // namespace millrace
