// Normalizations on the CPU.
#ifndef MILLRACE_ENGINE_OPS_CPU_NORM_H_
#define MILLRACE_ENGINE_OPS_CPU_NORM_H_

#include "absl/status/status.h"
#include "engine/ops/cpu/context.h"
#include "engine/ops/ops.h"

namespace millrace {

absl::Status RunNormForward(const CpuContext& context, const NormForward& op);
absl::Status RunNormBackward(const CpuContext& context, const NormBackward& op);
size_t NormWorkspaceBytes(const OpsLimits& limits, int threads);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_CPU_NORM_H_
