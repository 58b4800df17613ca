#include "server/worker/plan_conversion.h"

#include <cstdint>
#include <vector>

namespace millrace {
namespace {

v1::JobPlan::Bound ToProto(Bound bound) {
  switch (bound) {
    case Bound::kCompute:
      return v1::JobPlan::COMPUTE;
    case Bound::kLink:
      return v1::JobPlan::LINK;
    case Bound::kHostMemory:
      return v1::JobPlan::HOST_MEMORY;
    case Bound::kOptimizer:
      return v1::JobPlan::OPTIMIZER;
  }
  return v1::JobPlan::BOUND_UNSPECIFIED;
}

void AddMemory(const std::vector<MemoryItem>& items,
               google::protobuf::RepeatedPtrField<v1::JobPlan::Memory>* memory) {
  for (const MemoryItem& item : items) {
    v1::JobPlan::Memory* added = memory->Add();
    added->set_purpose(item.purpose);
    added->set_bytes(static_cast<int64_t>(item.bytes));
  }
}

}  // namespace

v1::StepStalls ToProto(const StepStalls& stalls) {
  v1::StepStalls proto;
  proto.set_weights_seconds(stalls.weights);
  proto.set_gradients_seconds(stalls.gradients);
  proto.set_optimizer_seconds(stalls.optimizer);
  proto.set_activations_seconds(stalls.activations);
  proto.set_data_seconds(stalls.data);
  return proto;
}

v1::JobPlan ToProto(const JobPlan& plan) {
  v1::JobPlan proto;
  proto.set_fits(plan.fits);
  proto.set_device(plan.device);
  proto.set_device_budget_bytes(plan.device_budget_bytes);
  proto.set_host_budget_bytes(plan.host_budget_bytes);
  AddMemory(plan.device_memory, proto.mutable_device_memory());
  AddMemory(plan.host_memory, proto.mutable_host_memory());
  proto.set_shortfall(plan.shortfall);
  if (!plan.fits) return proto;
  for (const JobPlan::Choice& choice : plan.choices) {
    v1::JobPlan::Choice* added = proto.add_choices();
    added->set_name(choice.name);
    added->set_value(choice.value);
    added->set_next_best(choice.next_best);
    added->set_next_best_extra_seconds(choice.next_best_extra_seconds);
    added->set_fixed(choice.fixed);
  }
  proto.set_tokens_per_step(plan.tokens_per_step);
  proto.set_tokens_per_micro_batch(plan.plan.shape.tokens_per_micro_batch);
  proto.set_step_seconds(plan.step_seconds);
  proto.set_tokens_per_second(plan.tokens_per_second);
  proto.set_model_flops(plan.model_flops);
  proto.set_bound(ToProto(plan.bound));
  proto.set_device_idle_ratio(plan.device_idle_ratio);
  *proto.mutable_stalls() = ToProto(plan.stalls);
  proto.set_largest_sequence_length(plan.largest_sequence_length);
  proto.set_largest_micro_batch_tokens(plan.largest_micro_batch_tokens);
  for (const std::string& assumption : plan.assumptions) proto.add_assumptions(assumption);
  return proto;
}

}  // namespace millrace
