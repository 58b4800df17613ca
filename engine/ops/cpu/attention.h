// Attention on the CPU: one (document, key/value head) pair a task, blockwise, or for the few
// queries of decoding key after key (attention_decode.h).
#ifndef MILLRACE_ENGINE_OPS_CPU_ATTENTION_H_
#define MILLRACE_ENGINE_OPS_CPU_ATTENTION_H_

#include "absl/status/status.h"
#include "engine/ops/cpu/context.h"
#include "engine/ops/ops.h"

namespace millrace {

absl::Status RunAttentionForward(const CpuContext& context, const AttentionForward& op);
absl::Status RunAttentionBackward(const CpuContext& context, const AttentionBackward& op);
size_t AttentionWorkspaceBytes(const OpsLimits& limits, DType type, int threads);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_CPU_ATTENTION_H_
