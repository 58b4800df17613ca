#include "engine/ops/cpu/attention_problem.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace millrace {

namespace {

// Document `i`'s task for the first key/value head.
AttentionTask TaskOf(const AttentionProblem& p, size_t i) {
  const int64_t begin = p.boundaries[i], length = p.boundaries[i + 1] - begin;
  const int64_t all = p.cached() ? p.key_count[i] : length;
  const int64_t keys = p.window > 0 ? std::min(all, length + p.window - 1) : all;
  return {begin, length, (p.cached() ? p.key_begin[i] + all : begin + length) - keys, keys, 0};
}

// About what a task costs: its scores, and as if every query saw, and every key were seen by, so
// many more.
double Cost(const AttentionProblem& p, const AttentionTask& task) {
  constexpr double kOverhead = 32;
  const auto queries = static_cast<double>(task.length), keys = static_cast<double>(task.keys);
  const double seen = keys - queries / 2;
  const double scores =
      queries * (p.window > 0 ? std::min(seen, static_cast<double>(p.window)) : seen);
  return scores + kOverhead * (queries + keys);
}

absl::Status Refuse(absl::string_view what, double value, absl::string_view wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat("attention: ", what, " is ", value, ", but must be ", wanted));
}

absl::Status CheckKeyRanges(const AttentionProblem& p) {
  if (p.key_begin.size() != p.key_count.size() ||
      (p.cached() && p.key_begin.size() != p.documents())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "attention: key_begin has ", p.key_begin.size(), " and key_count ", p.key_count.size(),
        " elements for ", p.documents(), " documents; give both one for each, or none"));
  }
  for (size_t i = 0; i < p.key_begin.size(); ++i) {
    const int64_t queries = p.boundaries[i + 1] - p.boundaries[i];
    if (p.key_begin[i] < 0 || p.key_count[i] < queries) {
      return absl::InvalidArgumentError(absl::StrCat(
          "attention: document ", i, " of ", queries, " queries has the ", p.key_count[i],
          " keys from row ", p.key_begin[i],
          " on; the row must not be negative, and there must be a key for each query"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

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
  if (p.head_dim <= 0) return Refuse("head_dim", p.head_dim, "positive");
  if (p.window < 0) return Refuse("window", p.window, "0 (none) or positive");
  // Not `<`: NaN is refused.
  if (!(p.softcap >= 0)) return Refuse("softcap", p.softcap, "0 (none) or positive");
  const int64_t q_row = p.num_heads * p.head_dim, kv_row = p.num_kv_heads * p.head_dim;
  const auto at_least = [](int64_t row) { return absl::StrCat("at least a row, ", row); };
  if (p.q_stride < q_row) return Refuse("q_stride", p.q_stride, at_least(q_row));
  if (p.k_stride < kv_row) return Refuse("k_stride", p.k_stride, at_least(kv_row));
  if (p.v_stride < kv_row) return Refuse("v_stride", p.v_stride, at_least(kv_row));
  return CheckKeyRanges(p);
}

int64_t MostKeys(const AttentionProblem& p) {
  int64_t most = 0;
  for (size_t i = 0; i < p.documents(); ++i) most = std::max(most, TaskOf(p, i).keys);
  return most;
}

std::vector<std::vector<AttentionTask>> DivideAttention(const AttentionProblem& p, int threads) {
  double total = 0;
  for (size_t i = 0; i < p.documents(); ++i) total += Cost(p, TaskOf(p, i)) * p.num_kv_heads;
  std::vector<std::vector<AttentionTask>> shares(threads);
  double before = 0;
  for (size_t i = 0; i < p.documents(); ++i) {
    AttentionTask task = TaskOf(p, i);
    if (task.length == 0) continue;
    const double cost = Cost(p, task);
    for (task.kv_head = 0; task.kv_head < p.num_kv_heads; ++task.kv_head) {
      const double middle = before + cost / 2;
      const int thread = std::min(static_cast<int>(middle / total * threads), threads - 1);
      shares[thread].push_back(task);
      before += cost;
    }
  }
  return shares;
}

}  // namespace millrace
