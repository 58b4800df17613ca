#include "server/worker/memory_needs.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/exec/step_runner.h"
#include "engine/model/slab_layout.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/schedule/planner.h"
#include "engine/state/host_state.h"
#include "engine/train/system_memory.h"
#include "server/base/errors.h"

namespace millrace {
namespace {

std::string Bytes(int64_t bytes) {
  return absl::StrFormat("%d bytes (%.2f GiB)", bytes,
                         static_cast<double>(bytes) / (int64_t{1} << 30));
}

// `field` as in a job file.
absl::Status Insufficient(ErrorReason reason, const std::string& field,
                          const std::string& message) {
  return WithPreconditionFailure(MakeError(reason, absl::StrCat(field, ": ", message)),
                                 ErrorReasonName(reason), absl::StrCat("spec.", field), message);
}

}  // namespace

int64_t HostStateBytes(const TrainSpec& resolved, const ModelSpec& model) {
  const std::vector<SlabLayout> layouts = MakeSlabLayouts(model);
  int64_t bytes = GradientMemoryBytes(layouts, *resolved.compute);
  for (const MemoryPool& pool :
       HostStateMemory(layouts, resolved.recipe, *resolved.compute, resolved.optimizer)) {
    bytes += pool.bytes;
  }
  return bytes;
}

absl::Status CheckMemory(const TrainSpec& resolved, const ModelSpec& model, const StepShape& shape,
                         int64_t node_bytes) {
  const int64_t usable_bytes =
      static_cast<int64_t>(kUsableShareOfMemory * static_cast<double>(node_bytes));
  const int64_t host_bytes = HostStateBytes(resolved, model);
  const std::string takes = absl::StrCat(
      "parameters, optimizer state and gradients of this model take ", Bytes(host_bytes), ", ");
  if (resolved.host_budget_bytes && host_bytes > *resolved.host_budget_bytes) {
    return Insufficient(
        ErrorReason::kHostMemoryInsufficient, "memory.host_budget",
        absl::StrCat(takes, host_bytes - *resolved.host_budget_bytes,
                     " bytes more than the budget of ", Bytes(*resolved.host_budget_bytes),
                     "; raise it or make the model smaller"));
  }
  if (host_bytes > usable_bytes) {
    return Insufficient(
        ErrorReason::kHostMemoryInsufficient, "model.config",
        absl::StrCat(takes, host_bytes - usable_bytes, " bytes more than the ", Bytes(usable_bytes),
                     " that this node can give; make the model smaller"));
  }
  // On a CPU the device's memory comes out of the same.
  const int64_t left_bytes = usable_bytes - host_bytes;
  const bool has_budget = resolved.device_budget_bytes.has_value();
  const int64_t device_bytes =
      std::min(resolved.device_budget_bytes.value_or(left_bytes), left_bytes);
  const size_t workspace_bytes = CpuOpsWorkspaceBytes(
      MakeOpsLimits(model, shape), *resolved.compute, static_cast<int>(*resolved.threads));
  absl::Status planned = MakePlan(MakeScheduledModel(model, MakeSlabLayouts(model),
                                                     *resolved.compute, workspace_bytes),
                                  shape, /*unified=*/true, static_cast<size_t>(device_bytes))
                             .status();
  if (!absl::IsResourceExhausted(planned)) return planned;
  return Insufficient(ErrorReason::kDeviceMemoryInsufficient,
                      has_budget ? "memory.device_budget" : "train.tokens_per_step",
                      std::string(planned.message()));
}

}  // namespace millrace
