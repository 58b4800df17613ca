// Attention of a few queries with cached keys, on the calling thread.
//
// Decoding asks of each sequence for one query (or the few of a guess) against all keys before it:
// reading these is nearly all there is to do. So keys and values are read once, where they lie, for
// all query heads of their group, and nothing is packed.
#ifndef MILLRACE_ENGINE_OPS_CPU_ATTENTION_DECODE_H_
#define MILLRACE_ENGINE_OPS_CPU_ATTENTION_DECODE_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "engine/base/dtype.h"
#include "engine/ops/cpu/attention_problem.h"
#include "engine/ops/ops.h"

namespace millrace {

// True for what the function below computes faster.
bool DecodingSuits(const AttentionProblem& problem, const AttentionTask& task);

// Scratch memory for heads of which `group` share keys.
size_t DecodingScratchBytes(int64_t num_heads, int64_t group, int64_t head_dim);

// The op's `tasks`, all of which suit and those of a document side by side, in `type`. `scratch` is
// 64-byte aligned, of DecodingScratchBytes.
void RunDecoding(const AttentionForward& op, absl::Span<const AttentionTask> tasks, DType type,
                 std::byte* scratch);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_CPU_ATTENTION_DECODE_H_
