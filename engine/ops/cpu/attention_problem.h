// What attention in both directions is given, and how it is divided.
#ifndef MILLRACE_ENGINE_OPS_CPU_ATTENTION_PROBLEM_H_
#define MILLRACE_ENGINE_OPS_CPU_ATTENTION_PROBLEM_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace millrace {

// What both directions are given.
struct AttentionProblem {
  int64_t tokens, num_heads, num_kv_heads, head_dim;
  absl::Span<const int32_t> boundaries;
  float scale;
  const void* qkv;

  int64_t row() const { return (num_heads + 2 * num_kv_heads) * head_dim; }
  int64_t group() const { return num_heads / num_kv_heads; }
  int64_t output_row() const { return num_heads * head_dim; }
  // Columns of the fused matrix where a head begins.
  int64_t query(int64_t head) const { return head * head_dim; }
  int64_t key(int64_t kv_head) const { return (num_heads + kv_head) * head_dim; }
  int64_t value(int64_t kv_head) const { return (num_heads + num_kv_heads + kv_head) * head_dim; }
};

template <typename Op>
AttentionProblem AttentionProblemOf(const Op& op) {
  return {op.tokens, op.num_heads, op.num_kv_heads, op.head_dim, op.boundaries, op.scale, op.qkv};
}

// INVALID_ARGUMENT unless heads and boundaries fit together.
absl::Status CheckAttention(const AttentionProblem& problem);

int64_t LongestDocument(const AttentionProblem& problem);

// The queries of a document that read one key/value head.
struct AttentionTask {
  int64_t begin, length;  // the document's tokens
  int64_t kv_head;
};

// Each thread's share of the tasks: contiguous, and about equal in cost.
std::vector<std::vector<AttentionTask>> DivideAttention(const AttentionProblem& problem,
                                                        int threads);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_CPU_ATTENTION_PROBLEM_H_
