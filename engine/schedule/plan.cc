#include "engine/schedule/plan.h"

#include "absl/strings/str_cat.h"
#include "engine/model/rotary_tables.h"

namespace millrace {

size_t RotaryTableBytes(const ModelSpec& spec, const StepShape& shape) {
  return static_cast<size_t>(RotaryTables(spec) *
                             RotaryTableElements(spec, shape.longest_document)) *
         sizeof(float);
}

DType AccumulatorDType(const ScheduledModel& model, const StepShape& shape, int unit) {
  const bool chunked = unit == model.head() && shape.tokens_per_micro_batch > shape.token_chunk;
  return shape.micro_batches > 1 || chunked ? DType::kF32 : model.gradient_dtypes[unit];
}

absl::Status CheckPlan(const ScheduledModel& model, const Plan& plan) {
  const int64_t blocks = model.num_blocks();
  const int64_t group = plan.order == Order::kBatchMajor ? 1 : plan.shape.micro_batches;
  const auto check = [](absl::string_view name, int64_t value, int64_t least, int64_t most) {
    if (value >= least && value <= most) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("a plan's ", name, " is ", value, "; it must be from ", least, " to ", most));
  };
  absl::Status status = check("weight_slots", plan.weight_slots, 1, INT32_MAX);
  status.Update(check("resident_units", plan.resident_units, 0, blocks));
  status.Update(check("kept_passes", plan.kept_passes, 0, blocks * group));
  status.Update(
      check("selective_passes", plan.selective_passes, 0, blocks * group - plan.kept_passes));
  status.Update(check("offloaded_passes", plan.offloaded_passes, 0, blocks * group));
  if (plan.head == HeadPlacement::kTiled &&
      (plan.shape.vocab_tile <= 0 || plan.order == Order::kBatchMajor)) {
    status.Update(absl::InvalidArgumentError(
        absl::StrCat("a head in tiles needs a vocab_tile, not ", plan.shape.vocab_tile,
                     ", and the layer-major order")));
  }
  return status;
}

}  // namespace millrace
