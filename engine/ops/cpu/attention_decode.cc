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

// Rows are the queries of a group: those of its first head, then those of the next.
struct Scratch {
  float *q, *o;                   // [rows, head_dim]
  float *scores, *probabilities;  // [rows, kKeyBlock]
  float *row_max, *row_sum;       // [rows]

  Scratch(WorkspaceCarver& carver, int64_t group, int64_t head_dim) {
    const int64_t rows = group * kMostQueries;
    q = carver.Take<float>(rows * head_dim);
    o = carver.Take<float>(rows * head_dim);
    scores = carver.Take<float>(rows * kKeyBlock);
    probabilities = carver.Take<float>(rows * kKeyBlock);
    row_max = carver.Take<float>(rows);
    row_sum = carver.Take<float>(rows);
  }
};

void RunTask(const AttentionForward& op, const AttentionProblem& p, const AttentionTask& task,
             DType type, const Scratch& s) {
  const int64_t d = p.head_dim, queries = task.length, rows = p.group() * queries;
  const int64_t first_head = task.kv_head * p.group(), column = task.kv_head * d;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t token = task.begin + row % queries, head = first_head + row / queries;
    Convert(At(p.q, token * p.q_stride + head * d, type), type, s.q + row * d, DType::kF32, d);
  }
  std::fill(s.o, s.o + rows * d, 0.0f);
  for (int64_t key = 0; key < task.keys; key += kKeyBlock) {
    const int64_t count = std::min(kKeyBlock, task.keys - key), at = task.key_begin + key;
    const auto cached = [&](const void* data, int64_t stride) {
      return CachedRows{At(data, at * stride + column, type), type, count, stride, d};
    };
    ScoreCachedKeys(s.q, rows, cached(p.k, p.k_stride), s.scores, kKeyBlock);
    if (p.softcap > 0) CapScores(s.scores, kKeyBlock, rows, count, p.scale, p.softcap);
    for (int64_t row = 0; row < rows; ++row) {
      SoftmaxTile({.rows = 1,
                   .padded_rows = 1,
                   .columns = count,
                   .first_visible = task.first_position() + row % queries - key,
                   .window = p.window,
                   .scale = p.scale,
                   .softcap = p.softcap,
                   .scores = s.scores + row * kKeyBlock,
                   .type = DType::kF32},
                  key == 0, s.probabilities + row * kKeyBlock, s.row_max + row, s.row_sum + row,
                  s.o + row * d, d);
    }
    AddCachedValues(s.probabilities, kKeyBlock, rows, cached(p.v, p.v_stride), s.o);
  }
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t token = task.begin + row % queries, head = first_head + row / queries;
    FinishRows(s.o + row * d, s.row_max + row, s.row_sum + row, 1, d, type,
               At(op.output, token * p.output_row() + head * d, type), p.output_row(),
               op.log_sum_exp == nullptr ? nullptr : op.log_sum_exp + head * p.tokens + token);
  }
}

}  // namespace

bool DecodingSuits(const AttentionProblem& problem, const AttentionTask& task) {
  return problem.cached() && task.length <= kMostQueries;
}

size_t DecodingScratchBytes(int64_t group, int64_t head_dim) {
  WorkspaceCarver carver(nullptr);
  Scratch scratch(carver, group, head_dim);
  return carver.used();
}

void RunDecoding(const AttentionForward& op, absl::Span<const AttentionTask> tasks, DType type,
                 std::byte* memory) {
  const AttentionProblem problem(op.input);
  WorkspaceCarver carver(memory);
  const Scratch scratch(carver, problem.group(), problem.head_dim);
  for (const AttentionTask& task : tasks) RunTask(op, problem, task, type, scratch);
}

}  // namespace millrace
