// What attention in both directions is given, and how it is divided.
#ifndef MILLRACE_ENGINE_OPS_CPU_ATTENTION_PROBLEM_H_
#define MILLRACE_ENGINE_OPS_CPU_ATTENTION_PROBLEM_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/ops/ops.h"

namespace millrace {

// What both directions are given, and what follows from it.
struct AttentionProblem : AttentionInput {
  explicit AttentionProblem(const AttentionInput& input) : AttentionInput(input) {
    // No document is longer, and sums with it do not overflow.
    window = std::min(window, int64_t{1} << 40);
  }

  // Elements of a row of the fused gradient.
  int64_t row() const { return (num_heads + 2 * num_kv_heads) * head_dim; }
  int64_t group() const { return num_heads / num_kv_heads; }
  size_t documents() const { return boundaries.size() - 1; }
  // True where keys are not the rows of their documents' queries.
  bool cached() const { return !key_begin.empty(); }
  int64_t output_row() const { return num_heads * head_dim; }
  // Columns of the fused gradient where a head begins.
  int64_t query(int64_t head) const { return head * head_dim; }
  int64_t key(int64_t kv_head) const { return (num_heads + kv_head) * head_dim; }
  int64_t value(int64_t kv_head) const { return (num_heads + num_kv_heads + kv_head) * head_dim; }
};

// INVALID_ARGUMENT unless heads, strides, boundaries and ranges of keys fit together, and the
// window and the soft cap are none or positive.
absl::Status CheckAttention(const AttentionProblem& problem);

// The queries of a document that read one key/value head.
struct AttentionTask {
  int64_t begin, length;    // tokens of the queries
  int64_t key_begin, keys;  // rows of the keys that any of them sees, the last of the document
  int64_t kv_head;

  // Query i is at the position of key first_position() + i, the last that it sees.
  int64_t first_position() const { return keys - length; }
};

// The most keys of a task.
int64_t MostKeys(const AttentionProblem& problem);

// Each thread's share of the tasks: contiguous, and about equal in cost.
std::vector<std::vector<AttentionTask>> DivideAttention(const AttentionProblem& problem,
                                                        int threads);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_CPU_ATTENTION_PROBLEM_H_
