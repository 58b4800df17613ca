#include "engine/ops/cpu/attention_problem.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace millrace {

absl::Status CheckAttention(const AttentionProblem& p) {
  if (p.num_kv_heads <= 0 || p.num_heads % p.num_kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("attention: num_heads (", p.num_heads,
                                                   ") must be a multiple of num_kv_heads (",
                                                   p.num_kv_heads, ")"));
  }
  const auto& b = p.boundaries;
  if (b.size() < 2 || b.front() != 0 || b.back() != p.tokens ||
      !std::is_sorted(b.begin(), b.end())) {
    return absl::InvalidArgumentError(
        absl::StrCat("attention: boundaries must rise from 0 to the number of tokens, ", p.tokens));
  }
  return absl::OkStatus();
}

int64_t LongestDocument(const AttentionProblem& p) {
  int64_t longest = 0;
  for (size_t i = 0; i + 1 < p.boundaries.size(); ++i) {
    longest = std::max<int64_t>(longest, p.boundaries[i + 1] - p.boundaries[i]);
  }
  return longest;
}

std::vector<std::vector<AttentionTask>> DivideAttention(const AttentionProblem& p, int threads) {
  // Of a document, as if it were so many keys longer.
  constexpr int64_t kOverhead = 64;
  double total = 0;
  const auto cost = [](double length) { return length * (length + 2 * kOverhead); };
  for (size_t i = 0; i + 1 < p.boundaries.size(); ++i) {
    total += cost(p.boundaries[i + 1] - p.boundaries[i]) * p.num_kv_heads;
  }
  std::vector<std::vector<AttentionTask>> shares(threads);
  double before = 0;
  for (size_t i = 0; i + 1 < p.boundaries.size(); ++i) {
    const int64_t length = p.boundaries[i + 1] - p.boundaries[i];
    if (length == 0) continue;
    for (int64_t head = 0; head < p.num_kv_heads; ++head) {
      const double middle = before + cost(length) / 2;
      const int thread = std::min(static_cast<int>(middle / total * threads), threads - 1);
      shares[thread].push_back({p.boundaries[i], length, head});
      before += cost(length);
    }
  }
  return shares;
}

}  // namespace millrace
