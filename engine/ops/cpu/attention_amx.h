// Attention in bf16 with the tiles of Intel's AMX, on the calling thread.
//
// A task's keys and values are packed once for all its queries. Forward, a block of queries meets
// blocks of keys as rows and columns of scores. Backward, keys are the rows, so that probabilities
// and gradients to scores lie as the products with output gradients and queries need them; only the
// gradient to the queries needs them turned.
#ifndef MILLRACE_ENGINE_OPS_CPU_ATTENTION_AMX_H_
#define MILLRACE_ENGINE_OPS_CPU_ATTENTION_AMX_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "engine/base/dtype.h"
#include "engine/ops/cpu/attention_problem.h"
#include "engine/ops/ops.h"

namespace millrace {

// True for heads that the functions below compute, given that the CPU has AMX.
bool AmxAttentionSuits(DType type, int64_t head_dim);

// Scratch memory for tasks of up to `most_keys` keys.
size_t AmxAttentionScratchBytes(int64_t most_keys, int64_t head_dim);

// The op's `tasks`, of up to `most_keys` keys. `scratch` is 64-byte aligned, of
// AmxAttentionScratchBytes.
void RunAmxAttentionForward(const AttentionForward& op, absl::Span<const AttentionTask> tasks,
                            int64_t most_keys, std::byte* scratch);
void RunAmxAttentionBackward(const AttentionBackward& op, absl::Span<const AttentionTask> tasks,
                             int64_t most_keys, std::byte* scratch);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_CPU_ATTENTION_AMX_H_
