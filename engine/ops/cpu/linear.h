// The linear layer on the CPU.
#ifndef MILLRACE_ENGINE_OPS_CPU_LINEAR_H_
#define MILLRACE_ENGINE_OPS_CPU_LINEAR_H_

#include "absl/status/status.h"
#include "engine/ops/cpu/context.h"
#include "engine/ops/ops.h"

namespace millrace {

// A product on all threads: `product` in a grid of tiles, one a thread.
absl::Status ParallelProduct(const CpuContext& context, const Product& product);

absl::Status RunLinearForward(const CpuContext& context, const LinearForward& op);
absl::Status RunLinearBackward(const CpuContext& context, const LinearBackward& op);
size_t LinearWorkspaceBytes(const OpsLimits& limits);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_CPU_LINEAR_H_
