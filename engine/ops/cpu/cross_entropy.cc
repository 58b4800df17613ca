#include "engine/ops/cpu/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/ops/cpu/cross_entropy_kernels.h"
#include "engine/ops/cpu/linear.h"
#include "engine/ops/cpu/soft_cap.h"
#include "engine/ops/reduce_kernels.h"

namespace millrace {
namespace {

// Classes, and tokens at most, of the logits that are in cache together.
constexpr int64_t kColumns = 256;
constexpr int64_t kRows = 2048;

int64_t BlocksOf(int64_t classes) { return (classes + kColumns - 1) / kColumns; }

// Scratch memory of one tile of `classes` for `tokens`.
struct TileScratch {
  int64_t stride;                // elements of a row of dlogits
  void* dlogits;                 // [tokens, stride]; forward only: nullptr
  float *block_max, *block_sum;  // [blocks, tokens]
  float* factor;                 // [tokens], of e^(l − max) in the gradient
  float* target_gradient;        // [tokens]
  int64_t logits_bytes;
  std::byte* logits;  // [threads] × [min(tokens, kRows), kColumns] f32

  TileScratch(WorkspaceCarver& carver, int64_t tokens, int64_t classes, DType type, int threads,
              bool backward) {
    // Rows of whole cache lines, an odd number of them: columns then do not share cache sets.
    stride = (AlignUp(classes, 64) | 32);
    dlogits = backward ? carver.Take(tokens * stride, type) : nullptr;
    block_max = carver.Take<float>(BlocksOf(classes) * tokens);
    block_sum = carver.Take<float>(BlocksOf(classes) * tokens);
    factor = carver.Take<float>(backward ? tokens : 0);
    target_gradient = carver.Take<float>(backward ? tokens : 0);
    logits_bytes = std::min(tokens, kRows) * kColumns * static_cast<int64_t>(sizeof(float));
    logits = carver.Take<std::byte>(threads * logits_bytes);
  }
};

// That of the op that has all tiles, besides a tile's.
struct AllScratch {
  SoftmaxStatistics statistics;
  float* dx;  // [tokens, hidden]; forward only: nullptr

  AllScratch(WorkspaceCarver& carver, int64_t tokens, int64_t hidden, bool backward)
      : statistics{.max = carver.Take<float>(tokens),
                   .sum = carver.Take<float>(tokens),
                   .target_logit = carver.Take<float>(tokens)},
        dx(backward ? carver.Take<float>(tokens * hidden) : nullptr) {}
};

double LogSumExp(const SoftmaxStatistics& statistics, int64_t token) {
  return statistics.max[token] + std::log(static_cast<double>(statistics.sum[token]));
}

// One tile of classes, its statistics and its gradients.
class Tile {
 public:
  Tile(const CpuContext& context, const ClassTile& tile, const TileScratch& scratch,
       const SoftmaxStatistics& statistics)
      : context_(context), t_(tile), s_(scratch), statistics_(statistics), type_(context.compute) {}

  // `keep`: leaves e^(l − the block's maximum) in dlogits.
  absl::Status TakeStatistics(bool keep) {
    MILLRACE_RETURN_IF_ERROR(ForEachBlock([&](const Block& b) {
      for (int64_t i = 0; i < b.tokens; ++i) {
        const int64_t target = t_.targets[b.token + i] - t_.first - b.column;
        if (target >= 0 && target < b.columns) {
          statistics_.target_logit[b.token + i] = b.logits[i * kColumns + target];
        }
      }
      const int64_t at = b.column / kColumns * t_.tokens + b.token;
      ExponentialRows(b.logits, kColumns, b.tokens, b.columns, t_.softcap, s_.block_max + at,
                      s_.block_sum + at, type_, keep ? Gradients(b.token, b.column) : nullptr,
                      s_.stride);
    }));
    context_.pool->ParallelFor(t_.tokens, [&](int64_t begin, int64_t end) {
      for (int64_t token = begin; token < end; ++token) MergeBlocks(token);
    });
    return absl::OkStatus();
  }

  // From what TakeStatistics kept, once the statistics are those of all classes.
  void ScaleKept(float gradient_scale, double z_loss) {
    FillFactors(gradient_scale, z_loss);
    context_.pool->ParallelFor(t_.tokens, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        for (int64_t column = 0; column < t_.count; column += kColumns) {
          const float block_max = s_.block_max[column / kColumns * t_.tokens + i];
          const float factor =
              s_.factor[i] == 0.0f ? 0.0f : std::exp(block_max - statistics_.max[i]) * s_.factor[i];
          ScaleInPlace(Gradients(i, column), type_, std::min(kColumns, t_.count - column), factor);
        }
        StoreTargetGradient(i, 0, t_.count);
      }
    });
  }

  // From logits made again.
  absl::Status MakeGradients(float gradient_scale, double z_loss) {
    FillFactors(gradient_scale, z_loss);
    return ForEachBlock([&](const Block& b) {
      GradientRows(b.logits, kColumns, b.tokens, b.columns, t_.softcap, statistics_.max + b.token,
                   s_.factor + b.token, type_, Gradients(b.token, b.column), s_.stride);
      for (int64_t i = 0; i < b.tokens; ++i) StoreTargetGradient(b.token + i, b.column, b.columns);
    });
  }

  // Of x, added to what tiles before have left, and of the weight.
  absl::Status Products(float* dx, const GradientTarget& dweight) {
    if (dweight.data != nullptr) {
      MILLRACE_RETURN_IF_ERROR(
          ParallelProduct(context_, {.m = t_.count,
                                     .n = t_.hidden,
                                     .k = t_.tokens,
                                     .type = type_,
                                     .a = s_.dlogits,
                                     .a_stride = s_.stride,
                                     .a_transposed = true,
                                     .b = t_.x,
                                     .b_stride = t_.hidden,
                                     .c = dweight.data,
                                     .c_stride = t_.hidden,
                                     .c_type = dweight.dtype,
                                     .addend = dweight.accumulate ? dweight.data : nullptr}));
    }
    return ParallelProduct(context_, {.m = t_.tokens,
                                      .n = t_.hidden,
                                      .k = t_.count,
                                      .type = type_,
                                      .a = s_.dlogits,
                                      .a_stride = s_.stride,
                                      .b = t_.weight,
                                      .b_stride = t_.hidden,
                                      .c = dx,
                                      .c_stride = t_.hidden,
                                      .c_type = DType::kF32,
                                      .addend = t_.first > 0 ? dx : nullptr});
  }

 private:
  // Logits of `tokens` from `token` on and of `columns` from the tile's `column` on.
  struct Block {
    int64_t token, tokens, column, columns;
    const float* logits;  // [tokens, kColumns]
  };

  void* Gradients(int64_t token, int64_t column) const {
    return At(s_.dlogits, token * s_.stride + column, type_);
  }

  absl::Status ForEachBlock(absl::FunctionRef<void(const Block&)> function) {
    const int threads = context_.pool->threads();
    return RunOnThreads(context_, [&](int thread) -> absl::Status {
      const auto range = ThreadPool::Split(t_.count, kColumns, thread, threads);
      auto* logits = reinterpret_cast<float*>(s_.logits + thread * s_.logits_bytes);
      for (int64_t column = range.begin; column < range.end; column += kColumns) {
        for (int64_t token = 0; token < t_.tokens; token += kRows) {
          const Block block = {token, std::min(kRows, t_.tokens - token), column,
                               std::min(kColumns, range.end - column), logits};
          MILLRACE_RETURN_IF_ERROR(MakeLogits(thread, block, logits));
          function(block);
        }
      }
      return absl::OkStatus();
    });
  }

  absl::Status MakeLogits(int thread, const Block& block, float* logits) const {
    MILLRACE_RETURN_IF_ERROR(
        context_.matmul->Run(thread, {.m = block.tokens,
                                      .n = block.columns,
                                      .k = t_.hidden,
                                      .type = type_,
                                      .a = At(t_.x, block.token * t_.hidden, type_),
                                      .a_stride = t_.hidden,
                                      .b = At(t_.weight, block.column * t_.hidden, type_),
                                      .b_stride = t_.hidden,
                                      .b_transposed = true,
                                      .c = logits,
                                      .c_stride = kColumns,
                                      .c_type = DType::kF32}));
    if (t_.softcap > 0) {
      for (int64_t i = 0; i < block.tokens; ++i) {
        SoftCapInPlace(logits + i * kColumns, block.columns, t_.softcap);
      }
    }
    return absl::OkStatus();
  }

  // Derivative of the soft cap where it gives `logit`.
  double CapSlope(double logit) const {
    const double ratio = t_.softcap > 0 ? logit / t_.softcap : 0;
    return 1 - ratio * ratio;
  }

  void MergeBlocks(int64_t token) {
    const int64_t blocks = BlocksOf(t_.count);
    const float* block_max = s_.block_max + token;
    const float* block_sum = s_.block_sum + token;
    const bool begins = t_.first == 0;
    const float before = begins ? -std::numeric_limits<float>::infinity() : statistics_.max[token];
    float largest = before;
    for (int64_t b = 0; b < blocks; ++b) largest = std::max(largest, block_max[b * t_.tokens]);
    double sum = begins ? 0.0 : statistics_.sum[token] * std::exp(double{before} - largest);
    for (int64_t b = 0; b < blocks; ++b) {
      sum += double{block_sum[b * t_.tokens]} * std::exp(block_max[b * t_.tokens] - largest);
    }
    statistics_.max[token] = largest;
    statistics_.sum[token] = static_cast<float>(sum);
  }

  void FillFactors(float gradient_scale, double z_loss) {
    context_.pool->ParallelFor(t_.tokens, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if (t_.targets[i] < 0) {
          s_.factor[i] = 0;
          continue;
        }
        const double sum = statistics_.sum[i];
        const double z = 2 * z_loss * LogSumExp(statistics_, i);
        s_.factor[i] = static_cast<float>((1 + z) * gradient_scale / sum);
        // p − 1 from the logit itself: it would lose digits in a rounded p.
        const double log_p =
            double{statistics_.target_logit[i]} - statistics_.max[i] - std::log(sum);
        s_.target_gradient[i] =
            static_cast<float>((std::expm1(log_p) + std::exp(log_p) * z) * gradient_scale *
                               CapSlope(statistics_.target_logit[i]));
      }
    });
  }

  // If the token's target is one of `columns` classes from the tile's `column` on.
  void StoreTargetGradient(int64_t token, int64_t column, int64_t columns) const {
    const int64_t target = t_.targets[token] - t_.first;
    if (t_.targets[token] < 0 || target < column || target >= column + columns) return;
    Convert(s_.target_gradient + token, DType::kF32, Gradients(token, target), type_, 1);
  }

  const CpuContext& context_;
  const ClassTile& t_;
  const TileScratch& s_;
  const SoftmaxStatistics& statistics_;
  const DType type_;
};

absl::Status CheckTargets(const int32_t* targets, int64_t tokens, int64_t vocab) {
  for (int64_t i = 0; i < tokens; ++i) {
    if (targets[i] >= vocab) {
      return absl::InvalidArgumentError(
          absl::StrCat("cross-entropy: the target ", targets[i], " is not under the vocabulary's ",
                       "size, ", vocab, "; the data need the tokenizer of this model"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTile(const ClassTile& tile) {
  if (tile.first < 0 || tile.count <= 0 || tile.first + tile.count > tile.vocab) {
    return absl::InvalidArgumentError(
        absl::StrCat("cross-entropy: a tile of ", tile.count, " classes from ", tile.first,
                     " on is not within the vocabulary of ", tile.vocab));
  }
  return CheckTargets(tile.targets, tile.tokens, tile.vocab);
}

absl::Status CheckGradient(const GradientTarget& dweight) {
  if (dweight.data != nullptr && dweight.accumulate && dweight.dtype != DType::kF32) {
    return absl::InvalidArgumentError(
        "cross-entropy: a gradient that is added to, over chunks of tokens or micro-batches, must "
        "be f32; bf16 is written once");
  }
  return absl::OkStatus();
}

absl::Status CheckScratch(const CpuContext& context, size_t bytes) {
  return CheckWorkspace(context, "cross-entropy", bytes);
}

}  // namespace

absl::Status RunCrossEntropyStatistics(const CpuContext& context,
                                       const CrossEntropyStatistics& op) {
  MILLRACE_RETURN_IF_ERROR(CheckTile(op.tile));
  WorkspaceCarver carver(context.workspace);
  const TileScratch scratch(carver, op.tile.tokens, op.tile.count, context.compute,
                            context.pool->threads(), /*backward=*/false);
  MILLRACE_RETURN_IF_ERROR(CheckScratch(context, carver.used()));
  return Tile(context, op.tile, scratch, op.statistics).TakeStatistics(/*keep=*/false);
}

absl::Status RunCrossEntropyLoss(const CpuContext&, const CrossEntropyLoss& op) {
  for (int64_t i = 0; i < op.tokens; ++i) {
    if (op.targets[i] < 0) continue;
    const double log_sum_exp = LogSumExp(op.statistics, i);
    *op.loss_sum +=
        log_sum_exp - op.statistics.target_logit[i] + op.z_loss * log_sum_exp * log_sum_exp;
  }
  return absl::OkStatus();
}

absl::Status RunCrossEntropyGradient(const CpuContext& context, const CrossEntropyGradient& op) {
  MILLRACE_RETURN_IF_ERROR(CheckTile(op.tile));
  MILLRACE_RETURN_IF_ERROR(CheckGradient(op.dweight));
  WorkspaceCarver carver(context.workspace);
  const TileScratch scratch(carver, op.tile.tokens, op.tile.count, context.compute,
                            context.pool->threads(), /*backward=*/true);
  MILLRACE_RETURN_IF_ERROR(CheckScratch(context, carver.used()));
  Tile tile(context, op.tile, scratch, op.statistics);
  MILLRACE_RETURN_IF_ERROR(tile.MakeGradients(op.gradient_scale, op.z_loss));
  return tile.Products(op.dx, op.dweight);
}

absl::Status RunLinearCrossEntropy(const CpuContext& context, const LinearCrossEntropy& op) {
  MILLRACE_RETURN_IF_ERROR(CheckTargets(op.targets, op.tokens, op.vocab));
  MILLRACE_RETURN_IF_ERROR(CheckGradient(op.dweight));
  const DType type = context.compute;
  const bool backward = op.dx != nullptr;
  const bool tiled = op.vocab_tile > 0;
  const int64_t tile_classes = tiled ? std::min(op.vocab_tile, op.vocab) : op.vocab;
  WorkspaceCarver carver(context.workspace);
  const AllScratch all(carver, op.tokens, op.hidden, backward);
  // The first tile is the largest.
  const auto scratch_of = [&](int64_t classes, WorkspaceCarver tile_carver) {
    const TileScratch scratch(tile_carver, op.tokens, classes, type, context.pool->threads(),
                              backward);
    return std::pair(scratch, tile_carver.used());
  };
  MILLRACE_RETURN_IF_ERROR(CheckScratch(context, scratch_of(tile_classes, carver).second));

  const auto for_each_tile =
      [&](absl::FunctionRef<absl::Status(const ClassTile&, Tile&)> function) -> absl::Status {
    for (int64_t first = 0; first < op.vocab; first += tile_classes) {
      const ClassTile classes = {.tokens = op.tokens,
                                 .hidden = op.hidden,
                                 .vocab = op.vocab,
                                 .first = first,
                                 .count = std::min(tile_classes, op.vocab - first),
                                 .x = op.x,
                                 .weight = At(op.weight, first * op.hidden, type),
                                 .targets = op.targets,
                                 .softcap = op.softcap};
      const TileScratch scratch = scratch_of(classes.count, carver).first;
      Tile tile(context, classes, scratch, all.statistics);
      MILLRACE_RETURN_IF_ERROR(function(classes, tile));
    }
    return absl::OkStatus();
  };
  MILLRACE_RETURN_IF_ERROR(for_each_tile(
      [&](const ClassTile&, Tile& tile) { return tile.TakeStatistics(backward && !tiled); }));
  MILLRACE_RETURN_IF_ERROR(RunCrossEntropyLoss(context, {.tokens = op.tokens,
                                                         .targets = op.targets,
                                                         .z_loss = op.z_loss,
                                                         .statistics = all.statistics,
                                                         .loss_sum = op.loss_sum}));
  if (!backward) return absl::OkStatus();
  MILLRACE_RETURN_IF_ERROR(for_each_tile([&](const ClassTile& classes, Tile& tile) -> absl::Status {
    if (tiled) {
      MILLRACE_RETURN_IF_ERROR(tile.MakeGradients(op.gradient_scale, op.z_loss));
    } else {
      tile.ScaleKept(op.gradient_scale, op.z_loss);
    }
    GradientTarget dweight = op.dweight;
    if (dweight.data != nullptr) {
      dweight.data = At(dweight.data, classes.first * op.hidden, dweight.dtype);
    }
    return tile.Products(all.dx, dweight);
  }));
  context.pool->ParallelFor(op.tokens * op.hidden, 64, [&](int64_t begin, int64_t end) {
    Convert(all.dx + begin, DType::kF32, At(op.dx, begin, type), type, end - begin);
  });
  return absl::OkStatus();
}

size_t CrossEntropyWorkspaceBytes(const OpsLimits& limits, DType type, int threads) {
  if (limits.vocab == 0) return 0;
  const int64_t tokens = std::min(limits.tokens, limits.token_chunk);
  const int64_t classes =
      limits.vocab_tile > 0 ? std::min(limits.vocab_tile, limits.vocab) : limits.vocab;
  WorkspaceCarver carver(nullptr);
  const AllScratch all(carver, tokens, limits.hidden, /*backward=*/true);
  const TileScratch tile(carver, tokens, classes, type, threads, /*backward=*/true);
  return carver.used();
}

}  // namespace millrace
