// What attention in both directions is given, and how it is divided.
#ifndef MILLRACE_ENGINE_OPS_CPU_ATTENTION_PROBLEM_H_
#define MILLRACE_ENGINE_OPS_CPU_ATTENTION_PROBLEM_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/ops/ops.h"

namespace millrace {

// What both directions are given, and what follows from it.
struct AttentionProblem : AttentionInput {
  explicit AttentionProblem(const AttentionInput& input) : AttentionInput(input) {}

  // Elements of a row of the fused gradient.
  int64_t row() const { return (num_heads + 2 * num_kv_heads) * head_dim; }
  int64_t group() const { return num_heads / num_kv_heads; }
  int64_t output_row() const { return num_heads * head_dim; }
  // Columns of the fused gradient where a head begins.
  int64_t query(int64_t head) const { return head * head_dim; }
  int64_t key(int64_t kv_head) const { return (num_heads + kv_head) * head_dim; }
  int64_t value(int64_t kv_head) const { return (num_heads + num_kv_heads + kv_head) * head_dim; }
};

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
