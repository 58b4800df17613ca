#include "engine/ops/cpu/attention_amx.h"

#include <algorithm>

#include "engine/ops/cpu/amx_packing.h"
#include "engine/ops/cpu/amx_tiles.h"
#include "engine/ops/cpu/attention_amx_kernels.h"
#include "engine/ops/cpu/attention_kernels.h"
#include "engine/ops/cpu/context.h"
#include "engine/ops/reduce_kernels.h"

namespace millrace {
namespace {

constexpr int64_t kStrip = kAmxBlock;
// Queries of a block, and keys that meet them at a time.
constexpr int64_t kForwardQueries = 64, kForwardKeys = 512;
constexpr int64_t kBackwardQueries = 64, kBackwardKeys = 128;
constexpr int64_t kQueries = std::max(kForwardQueries, kBackwardQueries);
// Elements of a row of scores: rows lie in different cache sets.
constexpr int64_t kForwardStride = kForwardKeys + 16, kBackwardStride = kBackwardQueries + 16;

int64_t Padded(int64_t rows) { return (rows + kStrip - 1) / kStrip * kStrip; }

// Memory of one task. Packed operands are named as in the products they are for.
struct Scratch {
  BFloat16 *q, *dout;  // [kQueries, head_dim], rows beyond the queries 0
  float *o, *dq;       // [kQueries, head_dim]
  float *row_max, *row_sum, *log_sum_exp, *delta;  // [kQueries]
  float *scores,
      *dprobabilities;  // [kForwardQueries, kForwardStride]; [kBackwardKeys, kBackwardStride]
  BFloat16 *probabilities,
      *dscores;  // [kForwardQueries, kForwardKeys]; [kBackwardKeys, kBackwardQueries]
  std::byte *keys_by_head, *values_by_head;  // Kᵀ; forward: V as well, backward: K
  std::byte *q_turned, *dout_turned, *q_packed, *dout_packed;
  std::byte* dscores_turned;
  BFloat16 *k, *v;  // [padded keys, head_dim]
  float *dk, *dv;   // likewise

  Scratch(WorkspaceCarver& carver, int64_t most_keys, int64_t d) {
    const int64_t padded = Padded(most_keys);
    constexpr int64_t kScores =
        std::max(kForwardQueries * kForwardStride, kBackwardKeys * kBackwardStride);
    constexpr int64_t kProbabilities =
        std::max(kForwardQueries * kForwardKeys, kBackwardKeys * kBackwardQueries);
    q = carver.Take<BFloat16>(kQueries * d);
    dout = carver.Take<BFloat16>(kQueries * d);
    o = carver.Take<float>(kQueries * d);
    dq = o;
    row_max = carver.Take<float>(kQueries);
    row_sum = carver.Take<float>(kQueries);
    log_sum_exp = row_max;
    delta = row_sum;
    scores = carver.Take<float>(kScores);
    dprobabilities = carver.Take<float>(kScores);
    probabilities = carver.Take<BFloat16>(kProbabilities);
    dscores = carver.Take<BFloat16>(kProbabilities);
    const auto packed = [&](int64_t rows) { return carver.Take<std::byte>(rows * d * 2); };
    keys_by_head = packed(padded);
    values_by_head = packed(padded);
    q_turned = packed(kQueries);
    dout_turned = packed(kQueries);
    q_packed = packed(kQueries);
    dout_packed = packed(kQueries);
    dscores_turned = carver.Take<std::byte>(kBackwardQueries * kBackwardKeys * 2);
    k = carver.Take<BFloat16>(padded * d);
    v = carver.Take<BFloat16>(padded * d);
    dk = carver.Take<float>(padded * d);
    dv = carver.Take<float>(padded * d);
  }
};

// Packs op(b) of `columns` columns and depth `k`, panel after panel. `k_rows`: `from` is [k,
// columns]; otherwise [columns, k].
void PackB(const BFloat16* from, int64_t stride, bool k_rows, int64_t columns, int64_t k,
           std::byte* to) {
  for (int64_t begin = 0; begin < columns; begin += kStrip) {
    const AmxPanel panel = {.from = from,
                            .stride = stride,
                            .is_b = true,
                            .k_rows = k_rows,
                            .begin = begin,
                            .end = std::min(begin + kStrip, columns),
                            .k = k};
    for (int64_t pair = 0; pair < panel.pairs(); ++pair, to += kAmxPairBytes) {
      PackAmxPair(panel, pair, to);
    }
  }
}

// A block of queries of one head.
struct Block {
  int64_t head;
  int64_t token, rows;
  int64_t begin;  // where among the task's keys the first query is
  int64_t strips() const { return Padded(rows) / kStrip; }
  int64_t end() const { return begin + Padded(rows); }
};

class Worker {
 public:
  Worker(const AttentionProblem& problem, int64_t most_keys, std::byte* memory)
      : p_(problem),
        d_(problem.head_dim),
        panels_(problem.head_dim / kStrip),
        carver_(memory),
        s_(carver_, most_keys, problem.head_dim) {}

  void Forward(const AttentionForward& op, const AttentionTask& task) {
    PackB(Keys(task), p_.k_stride, false, task.keys, d_, s_.keys_by_head);
    PackB(Values(task), p_.v_stride, true, d_, task.keys, s_.values_by_head);
    ForEachBlock(task, kForwardQueries, [&](const Block& block) { ForwardBlock(op, task, block); });
  }

  void Backward(const AttentionBackward& op, const AttentionTask& task) {
    const int64_t kv = task.kv_head, padded = Padded(task.length);
    PackB(Keys(task), p_.k_stride, true, d_, task.length, s_.keys_by_head);
    PackRows(Keys(task), p_.k_stride, task.length, padded, d_, DType::kBF16, s_.k);
    PackRows(Values(task), p_.v_stride, task.length, padded, d_, DType::kBF16, s_.v);
    std::fill(s_.dk, s_.dk + padded * d_, 0.0f);
    std::fill(s_.dv, s_.dv + padded * d_, 0.0f);
    ForEachBlock(task, kBackwardQueries,
                 [&](const Block& block) { BackwardBlock(op, task, block); });
    StoreRows(s_.dk, task.length, op.dqkv, task.begin, p_.key(kv));
    StoreRows(s_.dv, task.length, op.dqkv, task.begin, p_.value(kv));
  }

 private:
  const BFloat16* Keys(const AttentionTask& task) const {
    return static_cast<const BFloat16*>(p_.k) + task.key_begin * p_.k_stride + task.kv_head * d_;
  }
  const BFloat16* Values(const AttentionTask& task) const {
    return static_cast<const BFloat16*>(p_.v) + task.key_begin * p_.v_stride + task.kv_head * d_;
  }
  const BFloat16* Queries(int64_t token, int64_t head) const {
    return static_cast<const BFloat16*>(p_.q) + token * p_.q_stride + head * d_;
  }

  template <typename F>
  void ForEachBlock(const AttentionTask& task, int64_t queries, F function) {
    for (int64_t head = task.kv_head * p_.group(); head < (task.kv_head + 1) * p_.group(); ++head) {
      for (int64_t begin = 0; begin < task.length; begin += queries) {
        const Block block = {head, task.begin + begin, std::min(queries, task.length - begin),
                             task.first_position() + begin};
        PackRows(Queries(block.token, head), p_.q_stride, block.rows, Padded(block.rows), d_,
                 DType::kBF16, s_.q);
        function(block);
      }
    }
  }

  // f32 rows to columns of the fused gradient.
  void StoreRows(const float* rows, int64_t count, void* dqkv, int64_t token, int64_t column) {
    for (int64_t i = 0; i < count; ++i) {
      Convert(rows + i * d_, DType::kF32,
              static_cast<BFloat16*>(dqkv) + (token + i) * p_.row() + column, DType::kBF16, d_);
    }
  }

  // Adds to c[32, head_dim], or sets it.
  void Multiply(const AmxTiles& a, const std::byte* b, int64_t panel_pairs, int64_t pairs,
                bool accumulate, float* c) {
    for (int64_t panel = 0; panel < panels_; ++panel) {
      MultiplyAmxBlock(a, b + panel * panel_pairs * kAmxPairBytes, pairs, accumulate,
                       c + panel * kStrip, d_);
    }
  }

  // The strip of the first key that the query at `position` sees.
  int64_t FirstKey(int64_t position) const {
    if (p_.window == 0) return 0;
    return std::max<int64_t>(0, position + 1 - p_.window) / kStrip * kStrip;
  }

  void ForwardBlock(const AttentionForward& op, const AttentionTask& task, const Block& block) {
    const int64_t key_pairs = Padded(task.keys) / kStrip, rows = Padded(block.rows);
    const int64_t begin = FirstKey(block.begin), end = Padded(block.begin + block.rows);
    for (int64_t first_key = begin; first_key < end; first_key += kForwardKeys) {
      const bool first = first_key == begin;
      // The strips of keys that a strip of queries sees some of; none for some at the end.
      const auto keys_from = [&](int64_t row) {
        return std::max<int64_t>(0, FirstKey(block.begin + row) - first_key);
      };
      const auto keys_to = [&](int64_t row) {
        return std::min(kForwardKeys,
                        Padded(block.begin + std::min(row + kStrip, block.rows)) - first_key);
      };
      for (int64_t row = 0; row < rows; row += kStrip) {
        const AmxTiles q = AmxTilesInRows(s_.q + row * d_, d_);
        for (int64_t key = keys_from(row); key < keys_to(row); key += kStrip) {
          MultiplyAmxBlock(q,
                           s_.keys_by_head + (first_key + key) / kStrip * panels_ * kAmxPairBytes,
                           panels_, false, s_.scores + row * kForwardStride + key, kForwardStride);
        }
      }
      for (int64_t row = 0; row < rows; row += kStrip) {
        const int64_t from = keys_from(row), columns = keys_to(row) - from;
        if (columns <= 0) continue;
        float* scores = s_.scores + row * kForwardStride + from;
        const int64_t queries = std::min(kStrip, block.rows - row);
        if (p_.softcap > 0) {
          CapScores(scores, kForwardStride, queries, columns, p_.scale, p_.softcap);
        }
        SoftmaxStrip({.rows = queries,
                      .columns = columns,
                      .first_visible = block.begin + row - first_key - from,
                      .window = p_.window,
                      .scale = p_.softcap > 0 ? 1.0f : p_.scale,
                      .scores = scores,
                      .stride = kForwardStride},
                     first, s_.probabilities + row * kForwardKeys + from, kForwardKeys,
                     s_.row_max + row, s_.row_sum + row, s_.o + row * d_, d_);
      }
      for (int64_t row = 0; row < rows; row += kStrip) {
        const int64_t from = keys_from(row), columns = keys_to(row) - from;
        if (columns <= 0) continue;
        Multiply(AmxTilesInRows(s_.probabilities + row * kForwardKeys + from, kForwardKeys),
                 s_.values_by_head + (first_key + from) / kStrip * kAmxPairBytes, key_pairs,
                 columns / kStrip, !first, s_.o + row * d_);
      }
    }
    FinishRows(s_.o, s_.row_max, s_.row_sum, block.rows, d_, DType::kBF16,
               static_cast<BFloat16*>(op.output) + block.token * p_.output_row() + block.head * d_,
               p_.output_row(),
               op.log_sum_exp == nullptr ? nullptr
                                         : op.log_sum_exp + block.head * p_.tokens + block.token);
  }

  void BackwardBlock(const AttentionBackward& op, const AttentionTask& task, const Block& block) {
    const int64_t token = block.token, padded = Padded(block.rows);
    const int64_t at = token * p_.output_row() + block.head * d_;
    const auto* doutput = static_cast<const BFloat16*>(op.doutput) + at;
    PackRows(doutput, p_.output_row(), block.rows, padded, d_, DType::kBF16, s_.dout);
    PackB(s_.q, d_, false, padded, d_, s_.q_turned);
    PackB(s_.dout, d_, false, padded, d_, s_.dout_turned);
    PackB(s_.q, d_, true, d_, padded, s_.q_packed);
    PackB(s_.dout, d_, true, d_, padded, s_.dout_packed);
    std::fill(s_.delta, s_.delta + kQueries, 0.0f);
    std::fill(s_.log_sum_exp, s_.log_sum_exp + kQueries, 0.0f);
    RowDots(doutput, static_cast<const BFloat16*>(op.output) + at, p_.output_row(), block.rows, d_,
            DType::kBF16, s_.delta);
    const float* log_sum_exp = op.log_sum_exp + block.head * p_.tokens + token;
    std::copy(log_sum_exp, log_sum_exp + block.rows, s_.log_sum_exp);

    const int64_t key_pairs = Padded(task.length) / kStrip;
    const int64_t begin = FirstKey(block.begin);
    for (int64_t first_key = begin; first_key < block.end(); first_key += kBackwardKeys) {
      const int64_t keys = std::min(kBackwardKeys, block.end() - first_key);
      // One after the other for all keys: what a step has written is read when it has left the
      // store buffer, out of which tiles cannot be loaded.
      for (int64_t key = 0; key < keys; key += kStrip) MakeScores(block, first_key, key);
      for (int64_t key = 0; key < keys; key += kStrip) MakeGradients(block, first_key, key);
      for (int64_t key = 0; key < keys; key += kStrip) AddGradients(block, first_key, key);
      for (int64_t strip = 0; strip < block.strips(); ++strip) {
        Multiply(PackedAmxTiles(s_.dscores_turned + TurnedAt(strip, 0)),
                 s_.keys_by_head + first_key / kStrip * kAmxPairBytes, key_pairs, keys / kStrip,
                 first_key > begin, s_.dq + strip * kStrip * d_);
      }
    }
    StoreRows(s_.dq, block.rows, op.dqkv, token, p_.query(block.head));
  }

  // Bytes from the beginning of dscores_turned to the pair of a strip of queries and one of keys.
  static int64_t TurnedAt(int64_t query_strip, int64_t key) {
    return (query_strip * (kBackwardKeys / kStrip) + key / kStrip) * kAmxPairBytes;
  }

  // The strips of queries [first, last) that see some of the keys [row, row + kStrip).
  static int64_t FirstStrip(const Block& block, int64_t row) {
    return std::max<int64_t>(0, (row - block.begin) / kStrip);
  }
  int64_t LastStrip(const Block& block, int64_t row) const {
    if (p_.window == 0) return block.strips();
    return std::min(block.strips(), Padded(row + kStrip - 1 + p_.window - block.begin) / kStrip);
  }

  // Scores of the 32 keys from first_key + key on, and gradients to their probabilities.
  void MakeScores(const Block& block, int64_t first_key, int64_t key) {
    const int64_t row = first_key + key, at = key * kBackwardStride;
    const AmxTiles k = AmxTilesInRows(s_.k + row * d_, d_);
    const AmxTiles v = AmxTilesInRows(s_.v + row * d_, d_);
    const int64_t first = FirstStrip(block, row), last = LastStrip(block, row);
    for (int64_t strip = first; strip < last; ++strip) {
      const int64_t panel = strip * panels_ * kAmxPairBytes, column = at + strip * kStrip;
      MultiplyAmxBlock(k, s_.q_turned + panel, panels_, false, s_.scores + column, kBackwardStride);
      MultiplyAmxBlock(v, s_.dout_turned + panel, panels_, false, s_.dprobabilities + column,
                       kBackwardStride);
    }
    if (p_.softcap > 0) {
      CapScores(s_.scores + at + first * kStrip, kBackwardStride, kStrip, (last - first) * kStrip,
                p_.scale, p_.softcap);
    }
  }

  // Their probabilities, and gradients to their scores.
  void MakeGradients(const Block& block, int64_t first_key, int64_t key) {
    SoftmaxBackwardStrip({.columns = block.strips() * kStrip,
                          .first_visible = first_key + key - block.begin,
                          .window = p_.window,
                          .scale = p_.scale,
                          .softcap = p_.softcap,
                          .scores = s_.scores + key * kBackwardStride,
                          .dprobabilities = s_.dprobabilities + key * kBackwardStride,
                          .stride = kBackwardStride,
                          .log_sum_exp = s_.log_sum_exp,
                          .delta = s_.delta},
                         s_.probabilities + key * kBackwardQueries,
                         s_.dscores + key * kBackwardQueries);
  }

  // Gradients to their values and themselves; those to scores are turned for the queries'.
  void AddGradients(const Block& block, int64_t first_key, int64_t key) {
    const int64_t row = first_key + key, strips = block.strips(), columns = strips * kStrip;
    const int64_t first = FirstStrip(block, row), count = LastStrip(block, row) - first;
    const BFloat16* dscores = s_.dscores + key * kBackwardQueries;
    Multiply(AmxTilesInRows(s_.probabilities + key * kBackwardQueries, columns).At(first),
             s_.dout_packed + first * kAmxPairBytes, strips, count, true, s_.dv + row * d_);
    Multiply(AmxTilesInRows(dscores, columns).At(first), s_.q_packed + first * kAmxPairBytes,
             strips, count, true, s_.dk + row * d_);
    for (int64_t strip = 0; strip < strips; ++strip) {
      PackAmxPair({.from = dscores,
                   .stride = columns,
                   .is_b = false,
                   .k_rows = true,
                   .begin = strip * kStrip,
                   .end = (strip + 1) * kStrip,
                   .k = kStrip},
                  0, s_.dscores_turned + TurnedAt(strip, key));
    }
  }

  const AttentionProblem& p_;
  const int64_t d_, panels_;  // of 32 columns of a head
  WorkspaceCarver carver_;
  const Scratch s_;
};

}  // namespace

bool AmxAttentionSuits(DType type, int64_t head_dim) {
  return type == DType::kBF16 && head_dim % kStrip == 0;
}

size_t AmxAttentionScratchBytes(int64_t most_keys, int64_t head_dim) {
  WorkspaceCarver carver(nullptr);
  Scratch scratch(carver, most_keys, head_dim);
  return carver.used();
}

void RunAmxAttentionForward(const AttentionForward& op, absl::Span<const AttentionTask> tasks,
                            int64_t most_keys, std::byte* scratch) {
  const AmxTileRegisters registers;
  const AttentionProblem problem(op.input);
  Worker worker(problem, most_keys, scratch);
  for (const AttentionTask& task : tasks) worker.Forward(op, task);
}

void RunAmxAttentionBackward(const AttentionBackward& op, absl::Span<const AttentionTask> tasks,
                             int64_t most_keys, std::byte* scratch) {
  const AmxTileRegisters registers;
  const AttentionProblem problem(op.input);
  Worker worker(problem, most_keys, scratch);
  for (const AttentionTask& task : tasks) worker.Backward(op, task);
}

}  // namespace millrace
