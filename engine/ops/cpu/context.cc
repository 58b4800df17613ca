#include "engine/ops/cpu/context.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/ops/reduce_kernels.h"

namespace millrace {

absl::Status RunOnThreads(const CpuContext& context,
                          absl::FunctionRef<absl::Status(int thread)> function) {
  std::vector<absl::Status> statuses(context.pool->threads());
  context.pool->Run([&](int thread) { statuses[thread] = function(thread); });
  for (absl::Status& status : statuses) {
    if (!status.ok()) return std::move(status);
  }
  return absl::OkStatus();
}

absl::Status CheckWorkspace(const CpuContext& context, absl::string_view op, size_t bytes) {
  if (bytes <= context.workspace_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(op, ": needs ", bytes, " bytes of workspace, but ", context.workspace_bytes,
                   " are bound; size it with WorkspaceBytes for these limits"));
}

void StoreGradient(const float* values, const GradientTarget& target, int64_t begin,
                   int64_t count) {
  if (target.accumulate) {
    AddTo(values, DType::kF32, count, static_cast<float*>(target.data) + begin);
  } else {
    Convert(values, DType::kF32, At(target.data, begin, target.dtype), target.dtype, count);
  }
}

}  // namespace millrace
