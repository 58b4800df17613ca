#include "engine/ops/cpu/attention.h"

#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/base/status_macros.h"
#include "engine/ops/cpu/attention_amx.h"
#include "engine/ops/cpu/attention_decode.h"
#include "engine/ops/cpu/attention_kernels.h"
#include "engine/ops/cpu/attention_problem.h"
#include "engine/ops/cpu/matmul.h"
#include "engine/ops/reduce_kernels.h"

namespace millrace {
namespace {

// Queries and keys of a tile. The scores of a tile stay in the second-level cache; a block of few
// queries wastes little above the diagonal.
constexpr int64_t kQueryBlock = 64;
constexpr int64_t kKeyBlock = 512;
// Blocks are padded to a multiple of this, so that there are few shapes of products.
constexpr int64_t kPadding = 32;

int64_t Padded(int64_t rows) { return (rows + kPadding - 1) / kPadding * kPadding; }

// One thread's scratch memory.
struct Scratch {
  void *k, *v;                     // [padded keys, head_dim]
  void *q, *dout;                  // [kQueryBlock, head_dim]
  void *probabilities, *dscores;   // [kQueryBlock, kKeyBlock]
  float *scores, *dprobabilities;  // likewise
  float* o;                        // [kQueryBlock, head_dim]; backward: dq
  float *dk, *dv;                  // [padded keys, head_dim]
  float *row_max, *row_sum;        // [kQueryBlock]; backward: delta, log-sum-exp

  Scratch(WorkspaceCarver& carver, int64_t keys, int64_t head_dim, DType type) {
    const int64_t padded = Padded(keys);
    k = carver.Take(padded * head_dim, type);
    v = carver.Take(padded * head_dim, type);
    q = carver.Take(kQueryBlock * head_dim, type);
    dout = carver.Take(kQueryBlock * head_dim, type);
    probabilities = carver.Take(kQueryBlock * kKeyBlock, type);
    dscores = carver.Take(kQueryBlock * kKeyBlock, type);
    scores = carver.Take<float>(kQueryBlock * kKeyBlock);
    dprobabilities = carver.Take<float>(kQueryBlock * kKeyBlock);
    o = carver.Take<float>(kQueryBlock * head_dim);
    dk = carver.Take<float>(padded * head_dim);
    dv = carver.Take<float>(padded * head_dim);
    row_max = carver.Take<float>(kQueryBlock);
    row_sum = carver.Take<float>(kQueryBlock);
  }

  static size_t Bytes(int64_t keys, int64_t head_dim, DType type) {
    WorkspaceCarver carver(nullptr);
    Scratch scratch(carver, keys, head_dim, type);
    return carver.used();
  }
};

// The products and tiles of one thread.
class Worker {
 public:
  Worker(const CpuContext& context, int thread, const AttentionProblem& problem,
         const Scratch& scratch)
      : context_(context), thread_(thread), p_(problem), s_(scratch), type_(context.compute) {}

  absl::Status Forward(const AttentionForward& op, const AttentionTask& task) {
    PackKeys(task);
    for (int64_t head = task.kv_head * p_.group(); head < (task.kv_head + 1) * p_.group(); ++head) {
      for (int64_t q0 = 0; q0 < task.length; q0 += kQueryBlock) {
        MILLRACE_RETURN_IF_ERROR(ForwardBlock(op, task, head, q0));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const AttentionBackward& op, const AttentionTask& task) {
    PackKeys(task);
    const int64_t count = Padded(task.keys) * p_.head_dim;
    std::fill(s_.dk, s_.dk + count, 0.0f);
    std::fill(s_.dv, s_.dv + count, 0.0f);
    for (int64_t head = task.kv_head * p_.group(); head < (task.kv_head + 1) * p_.group(); ++head) {
      for (int64_t q0 = 0; q0 < task.length; q0 += kQueryBlock) {
        MILLRACE_RETURN_IF_ERROR(BackwardBlock(op, task, head, q0));
      }
    }
    StoreRows(s_.dk, task.length, op.dqkv, task.begin, p_.key(task.kv_head));
    StoreRows(s_.dv, task.length, op.dqkv, task.begin, p_.value(task.kv_head));
    return absl::OkStatus();
  }

 private:
  void PackKeys(const AttentionTask& task) {
    const int64_t column = task.kv_head * p_.head_dim;
    PackRows(At(p_.k, task.key_begin * p_.k_stride + column, type_), p_.k_stride, task.keys,
             Padded(task.keys), p_.head_dim, type_, s_.k);
    PackRows(At(p_.v, task.key_begin * p_.v_stride + column, type_), p_.v_stride, task.keys,
             Padded(task.keys), p_.head_dim, type_, s_.v);
  }

  // f32 rows to columns of the fused gradient.
  void StoreRows(const float* rows, int64_t count, void* dqkv, int64_t token, int64_t column) {
    for (int64_t i = 0; i < count; ++i) {
      Convert(rows + i * p_.head_dim, DType::kF32, At(dqkv, (token + i) * p_.row() + column, type_),
              type_, p_.head_dim);
    }
  }

  absl::Status Multiply(int64_t m, int64_t n, int64_t k, const void* a, bool a_transposed,
                        const void* b, bool b_transposed, void* c, bool accumulate) {
    return context_.matmul->Run(thread_, {.m = m,
                                          .n = n,
                                          .k = k,
                                          .type = type_,
                                          .a = a,
                                          .a_stride = a_transposed ? m : k,
                                          .a_transposed = a_transposed,
                                          .b = b,
                                          .b_stride = b_transposed ? k : n,
                                          .b_transposed = b_transposed,
                                          .c = c,
                                          .c_stride = n,
                                          .c_type = DType::kF32,
                                          .addend = accumulate ? c : nullptr});
  }

  // The first key of the first tile of queries that lie at `position` and after.
  int64_t FirstKey(int64_t position) const {
    if (p_.window == 0) return 0;
    return std::max<int64_t>(0, position + 1 - p_.window) / kPadding * kPadding;
  }

  // Of `rows` queries from `position` on with the keys from k0 on; caps the scores.
  ScoreTile TileOf(int64_t rows, int64_t position, int64_t k0, int64_t columns) const {
    if (p_.softcap > 0) CapScores(s_.scores, columns, rows, columns, p_.scale, p_.softcap);
    return {.rows = rows,
            .padded_rows = Padded(rows),
            .columns = columns,
            .first_visible = position - k0,
            .window = p_.window,
            .scale = p_.scale,
            .softcap = p_.softcap,
            .scores = s_.scores,
            .type = type_};
  }

  absl::Status ForwardBlock(const AttentionForward& op, const AttentionTask& task, int64_t head,
                            int64_t q0) {
    const int64_t rows = std::min(kQueryBlock, task.length - q0), padded = Padded(rows);
    const int64_t d = p_.head_dim, token = task.begin + q0;
    PackRows(At(p_.q, token * p_.q_stride + head * d, type_), p_.q_stride, rows, padded, d, type_,
             s_.q);
    const int64_t position = task.first_position() + q0;
    const int64_t first_key = FirstKey(position), last_key = Padded(position + rows);
    for (int64_t k0 = first_key; k0 < last_key; k0 += kKeyBlock) {
      const int64_t keys = std::min(kKeyBlock, last_key - k0);
      MILLRACE_RETURN_IF_ERROR(
          Multiply(padded, keys, d, s_.q, false, At(s_.k, k0 * d, type_), true, s_.scores, false));
      const bool first = k0 == first_key;
      SoftmaxTile(TileOf(rows, position, k0, keys), first, s_.probabilities, s_.row_max, s_.row_sum,
                  s_.o, d);
      MILLRACE_RETURN_IF_ERROR(Multiply(padded, d, keys, s_.probabilities, false,
                                        At(s_.v, k0 * d, type_), false, s_.o, !first));
    }
    FinishRows(s_.o, s_.row_max, s_.row_sum, rows, d, type_,
               At(op.output, token * p_.output_row() + head * d, type_), p_.output_row(),
               op.log_sum_exp == nullptr ? nullptr : op.log_sum_exp + head * p_.tokens + token);
    return absl::OkStatus();
  }

  absl::Status BackwardBlock(const AttentionBackward& op, const AttentionTask& task, int64_t head,
                             int64_t q0) {
    const int64_t rows = std::min(kQueryBlock, task.length - q0), padded = Padded(rows);
    const int64_t d = p_.head_dim, token = task.begin + q0;
    const int64_t output = token * p_.output_row() + head * d;
    PackRows(At(p_.q, token * p_.q_stride + head * d, type_), p_.q_stride, rows, padded, d, type_,
             s_.q);
    PackRows(At(op.doutput, output, type_), p_.output_row(), rows, padded, d, type_, s_.dout);
    float* delta = s_.row_max;
    RowDots(At(op.doutput, output, type_), At(op.output, output, type_), p_.output_row(), rows, d,
            type_, delta);
    const int64_t position = task.first_position() + q0;
    const int64_t first_key = FirstKey(position), last_key = Padded(position + rows);
    for (int64_t k0 = first_key; k0 < last_key; k0 += kKeyBlock) {
      const int64_t keys = std::min(kKeyBlock, last_key - k0);
      const void* k = At(s_.k, k0 * d, type_);
      const void* v = At(s_.v, k0 * d, type_);
      MILLRACE_RETURN_IF_ERROR(Multiply(padded, keys, d, s_.q, false, k, true, s_.scores, false));
      MILLRACE_RETURN_IF_ERROR(
          Multiply(padded, keys, d, s_.dout, false, v, true, s_.dprobabilities, false));
      SoftmaxBackwardTile(TileOf(rows, position, k0, keys), s_.dprobabilities,
                          op.log_sum_exp + head * p_.tokens + token, delta, s_.probabilities,
                          s_.dscores);
      MILLRACE_RETURN_IF_ERROR(
          Multiply(keys, d, padded, s_.probabilities, true, s_.dout, false, s_.dv + k0 * d, true));
      MILLRACE_RETURN_IF_ERROR(
          Multiply(keys, d, padded, s_.dscores, true, s_.q, false, s_.dk + k0 * d, true));
      MILLRACE_RETURN_IF_ERROR(
          Multiply(padded, d, keys, s_.dscores, false, k, false, s_.o, k0 > first_key));
    }
    StoreRows(s_.o, rows, op.dqkv, token, p_.query(head));
    return absl::OkStatus();
  }

  const CpuContext& context_;
  const int thread_;
  const AttentionProblem& p_;
  const Scratch& s_;
  const DType type_;
};

bool UseAmx(DType type, int64_t head_dim) {
  return CpuUsesAmx() && AmxAttentionSuits(type, head_dim);
}

size_t ScratchBytes(int64_t most_keys, int64_t num_heads, int64_t num_kv_heads, int64_t head_dim,
                    DType type) {
  const size_t blocks = UseAmx(type, head_dim) ? AmxAttentionScratchBytes(most_keys, head_dim)
                                               : Scratch::Bytes(most_keys, head_dim, type);
  return std::max(blocks, DecodingScratchBytes(num_heads, num_heads / num_kv_heads, head_dim));
}

// One thread's tasks.
template <typename Op>
using AmxTasks = void (*)(const Op& op, absl::Span<const AttentionTask> tasks, int64_t most_keys,
                          std::byte* scratch);

template <typename Op>
absl::Status RunTasks(const CpuContext& context, const Op& op,
                      absl::Status (Worker::*work)(const Op&, const AttentionTask&),
                      AmxTasks<Op> amx_tasks) {
  const AttentionProblem problem(op.input);
  if (problem.tokens == 0) return absl::OkStatus();
  MILLRACE_RETURN_IF_ERROR(CheckAttention(problem));
  const int64_t most_keys = MostKeys(problem);
  const size_t bytes = ScratchBytes(most_keys, problem.num_heads, problem.num_kv_heads,
                                    problem.head_dim, context.compute);
  const int threads = context.pool->threads();
  MILLRACE_RETURN_IF_ERROR(CheckWorkspace(context, "attention", bytes * threads));
  std::vector<std::vector<AttentionTask>> shares = DivideAttention(problem, threads);
  return RunOnThreads(context, [&](int thread) -> absl::Status {
    std::byte* const memory = context.workspace + thread * bytes;
    absl::Span<AttentionTask> tasks = absl::MakeSpan(shares[thread]);
    if constexpr (std::is_same_v<Op, AttentionForward>) {
      const auto others = std::stable_partition(
          tasks.begin(), tasks.end(),
          [&](const AttentionTask& task) { return DecodingSuits(problem, task); });
      const size_t decoding = others - tasks.begin();
      RunDecoding(op, tasks.first(decoding), context.compute, memory);
      tasks.remove_prefix(decoding);
    }
    if (tasks.empty()) return absl::OkStatus();
    if (UseAmx(context.compute, problem.head_dim)) {
      amx_tasks(op, tasks, most_keys, memory);
      return absl::OkStatus();
    }
    WorkspaceCarver carver(memory);
    const Scratch scratch(carver, most_keys, problem.head_dim, context.compute);
    Worker worker(context, thread, problem, scratch);
    for (const AttentionTask& task : tasks) MILLRACE_RETURN_IF_ERROR((worker.*work)(op, task));
    return absl::OkStatus();
  });
}

}  // namespace

absl::Status RunAttentionForward(const CpuContext& context, const AttentionForward& op) {
  return RunTasks(context, op, &Worker::Forward, RunAmxAttentionForward);
}

absl::Status RunAttentionBackward(const CpuContext& context, const AttentionBackward& op) {
  if (!op.input.key_begin.empty() || !op.input.key_count.empty()) {
    return absl::InvalidArgumentError(
        "attention: there is no backward with cached keys; leave key_begin and key_count empty");
  }
  return RunTasks(context, op, &Worker::Backward, RunAmxAttentionBackward);
}

size_t AttentionWorkspaceBytes(const OpsLimits& limits, DType type, int threads) {
  return ScratchBytes(limits.longest_document, limits.num_heads,
                      std::max<int64_t>(1, limits.num_kv_heads), limits.head_dim, type) *
         threads;
}

}  // namespace millrace
