#include "engine/ops/cpu/attention_decode.h"

#include <algorithm>

#include "engine/ops/cpu/attention_decode_kernels.h"
#include "engine/ops/cpu/attention_kernels.h"
#include "engine/ops/cpu/context.h"
#include "engine/ops/reduce_kernels.h"

namespace millrace {
namespace {

constexpr int64_t kMostQueries = 4;
constexpr int64_t kKeyBlock = 256;

// Rows are the queries of all heads: those of the first, then those of the next.
struct Scratch {
  float *q, *o;                   // [rows, head_dim]
  float *row_max, *row_sum;       // [rows]
  float *scores, *probabilities;  // [rows of a group, kKeyBlock]

  Scratch(WorkspaceCarver& carver, int64_t num_heads, int64_t group, int64_t head_dim) {
    const int64_t rows = num_heads * kMostQueries;
    q = carver.Take<float>(rows * head_dim);
    o = carver.Take<float>(rows * head_dim);
    row_max = carver.Take<float>(rows);
    row_sum = carver.Take<float>(rows);
    scores = carver.Take<float>(group * kMostQueries * kKeyBlock);
    probabilities = carver.Take<float>(group * kMostQueries * kKeyBlock);
  }
};

// The queries of one document.
class Worker {
 public:
  Worker(const AttentionForward& op, const AttentionProblem& problem, DType type, const Scratch& s)
      : op_(op), p_(problem), d_(problem.head_dim), type_(type), s_(s) {}

  // `tasks` are a document's. A block of keys is for all heads before the next: what one head
  // leaves of a page is at hand for the others.
  void Run(absl::Span<const AttentionTask> tasks) {
    const AttentionTask& any = tasks.front();
    for (const AttentionTask& task : tasks) Load(task);
    for (int64_t key = 0; key < any.keys; key += kKeyBlock) {
      for (const AttentionTask& task : tasks) AddKeys(task, key);
    }
    for (const AttentionTask& task : tasks) Store(task);
  }

 private:
  // Calls function(row, head, token) for the task's queries.
  template <typename F>
  void ForEachRow(const AttentionTask& task, F function) const {
    for (int64_t row = FirstRow(task); row < FirstRow(task) + Rows(task); ++row) {
      function(row, row / task.length, task.begin + row % task.length);
    }
  }
  int64_t Rows(const AttentionTask& task) const { return p_.group() * task.length; }
  int64_t FirstRow(const AttentionTask& task) const { return task.kv_head * Rows(task); }

  void Load(const AttentionTask& task) {
    ForEachRow(task, [&](int64_t row, int64_t head, int64_t token) {
      Convert(At(p_.q, token * p_.q_stride + head * d_, type_), type_, s_.q + row * d_, DType::kF32,
              d_);
      std::fill(s_.o + row * d_, s_.o + (row + 1) * d_, 0.0f);
    });
  }

  // One step of the online softmax, with keys [key, key + kKeyBlock).
  void AddKeys(const AttentionTask& task, int64_t key) {
    const int64_t count = std::min(kKeyBlock, task.keys - key), at = task.key_begin + key;
    const int64_t first = FirstRow(task), rows = Rows(task);
    const auto cached = [&](const void* data, int64_t stride) {
      return CachedRows{At(data, at * stride + task.kv_head * d_, type_), type_, count, stride, d_};
    };
    ScoreCachedKeys(s_.q + first * d_, rows, cached(p_.k, p_.k_stride), s_.scores, kKeyBlock);
    if (p_.softcap > 0) CapScores(s_.scores, kKeyBlock, rows, count, p_.scale, p_.softcap);
    ForEachRow(task, [&](int64_t row, int64_t /*head*/, int64_t token) {
      const int64_t at_block = (row - first) * kKeyBlock;
      SoftmaxTile({.rows = 1,
                   .padded_rows = 1,
                   .columns = count,
                   .first_visible = task.first_position() + token - task.begin - key,
                   .window = p_.window,
                   .scale = p_.scale,
                   .softcap = p_.softcap,
                   .scores = s_.scores + at_block,
                   .type = DType::kF32},
                  key == 0, s_.probabilities + at_block, s_.row_max + row, s_.row_sum + row,
                  s_.o + row * d_, d_);
    });
    AddCachedValues(s_.probabilities, kKeyBlock, rows, cached(p_.v, p_.v_stride),
                    s_.o + first * d_);
  }

  void Store(const AttentionTask& task) {
    ForEachRow(task, [&](int64_t row, int64_t head, int64_t token) {
      FinishRows(s_.o + row * d_, s_.row_max + row, s_.row_sum + row, 1, d_, type_,
                 At(op_.output, token * p_.output_row() + head * d_, type_), p_.output_row(),
                 op_.log_sum_exp == nullptr ? nullptr : op_.log_sum_exp + head * p_.tokens + token);
    });
  }

  const AttentionForward& op_;
  const AttentionProblem& p_;
  const int64_t d_;
  const DType type_;
  const Scratch& s_;
};

}  // namespace

bool DecodingSuits(const AttentionProblem& problem, const AttentionTask& task) {
  return problem.cached() && task.length <= kMostQueries;
}

size_t DecodingScratchBytes(int64_t num_heads, int64_t group, int64_t head_dim) {
  WorkspaceCarver carver(nullptr);
  Scratch scratch(carver, num_heads, group, head_dim);
  return carver.used();
}

void RunDecoding(const AttentionForward& op, absl::Span<const AttentionTask> tasks, DType type,
                 std::byte* memory) {
  const AttentionProblem problem(op.input);
  WorkspaceCarver carver(memory);
  const Scratch scratch(carver, problem.num_heads, problem.group(), problem.head_dim);
  Worker worker(op, problem, type, scratch);
  while (!tasks.empty()) {
    const auto next = std::find_if(tasks.begin(), tasks.end(), [&](const AttentionTask& task) {
      return task.begin != tasks.front().begin;
    });
    const size_t count = next - tasks.begin();
    worker.Run(tasks.first(count));
    tasks.remove_prefix(count);
  }
}

}  // namespace millrace
