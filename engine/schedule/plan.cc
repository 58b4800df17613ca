#include "engine/schedule/plan.h"

namespace millrace {

size_t RotaryTableBytes(const ModelSpec& spec, const StepShape& shape) {
  if (spec.position != PositionKind::kRotary) return 0;
  return static_cast<size_t>(shape.longest_document * spec.head_dim) * sizeof(float);
}

DType AccumulatorDType(const ScheduledModel& model, const StepShape& shape, int unit) {
  const bool chunked = unit == model.head() && shape.tokens_per_micro_batch > shape.token_chunk;
  return shape.micro_batches > 1 || chunked ? DType::kF32 : model.gradient_dtypes[unit];
}

}  // namespace millrace
