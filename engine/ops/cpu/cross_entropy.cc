#include "engine/ops/cpu/cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/ops/cpu/cross_entropy_kernels.h"
#include "engine/ops/cpu/linear.h"
#include "engine/ops/reduce_kernels.h"

namespace millrace {
namespace {

constexpr int64_t kVocabTile = 256;
// Words over which gradients to hidden states are summed at a time.
constexpr int64_t kVocabDepth = 1536;
// Tokens whose logits of a tile are in cache together.
constexpr int64_t kTokenTile = 1024;

int64_t TilesOf(int64_t vocab) { return (vocab + kVocabTile - 1) / kVocabTile; }

// Scratch memory of one chunk.
struct Scratch {
  void* dlogits;               // [chunk, stride]; forward only: nullptr
  int64_t stride;              // elements of a row of dlogits
  float *tile_max, *tile_sum;  // [tiles, chunk]
  float* dx;                   // [chunk, hidden]
  float* target_logit;         // [chunk]
  float* log_sum_exp;          // [chunk]
  std::byte* tile_logits;      // [threads] × [kTokenTile, kVocabTile] f32
  static constexpr size_t kTileBytes = kTokenTile * kVocabTile * sizeof(float);

  Scratch(Carver& carver, int64_t chunk, int64_t hidden, int64_t vocab, DType type, int threads,
          bool backward) {
    // Rows of whole cache lines, an odd number of them: columns then do not share cache sets.
    stride = (AlignUp(vocab, 64) | 32);
    dlogits = backward ? carver.Take(chunk * stride, type) : nullptr;
    tile_max = carver.Take<float>(TilesOf(vocab) * chunk);
    tile_sum = carver.Take<float>(TilesOf(vocab) * chunk);
    dx = carver.Take<float>(backward ? chunk * hidden : 0);
    target_logit = carver.Take<float>(chunk);
    log_sum_exp = carver.Take<float>(chunk);
    tile_logits = carver.Take<std::byte>(threads * kTileBytes);
  }

  static size_t Bytes(int64_t chunk, int64_t hidden, int64_t vocab, DType type, int threads,
                      bool backward) {
    Carver carver(nullptr);
    Scratch scratch(carver, chunk, hidden, vocab, type, threads, backward);
    return carver.used();
  }
};

// One chunk of tokens.
class Chunk {
 public:
  Chunk(const CpuContext& context, const LinearCrossEntropy& op, const Scratch& scratch,
        int64_t begin, int64_t count)
      : context_(context),
        op_(op),
        s_(scratch),
        begin_(begin),
        count_(count),
        type_(context.compute),
        x_(At(op.x, begin * op.hidden, context.compute)),
        targets_(op.targets + begin) {}

  absl::Status Run() {
    MILLRACE_RETURN_IF_ERROR(Exponentials());
    AddLosses();
    if (op_.dx == nullptr) return absl::OkStatus();
    Differentiate();
    return Products();
  }

 private:
  absl::Status Exponentials() {
    const int threads = context_.pool->threads();
    return RunOnThreads(context_, [&](int thread) -> absl::Status {
      const auto range = ThreadPool::Split(op_.vocab, kVocabTile, thread, threads);
      auto* logits = reinterpret_cast<float*>(s_.tile_logits + thread * Scratch::kTileBytes);
      for (int64_t column = range.begin; column < range.end; column += kVocabTile) {
        const int64_t columns = std::min(kVocabTile, range.end - column);
        for (int64_t token = 0; token < count_; token += kTokenTile) {
          const int64_t tokens = std::min(kTokenTile, count_ - token);
          MILLRACE_RETURN_IF_ERROR(
              TileExponentials(thread, logits, token, tokens, column, columns));
        }
      }
      return absl::OkStatus();
    });
  }

  absl::Status TileExponentials(int thread, float* logits, int64_t token, int64_t tokens,
                                int64_t column, int64_t columns) {
    MILLRACE_RETURN_IF_ERROR(
        context_.matmul->Run(thread, {.m = tokens,
                                      .n = columns,
                                      .k = op_.hidden,
                                      .type = type_,
                                      .a = At(x_, token * op_.hidden, type_),
                                      .a_stride = op_.hidden,
                                      .b = At(op_.weight, column * op_.hidden, type_),
                                      .b_stride = op_.hidden,
                                      .b_transposed = true,
                                      .c = logits,
                                      .c_stride = kVocabTile,
                                      .c_type = DType::kF32}));
    for (int64_t i = 0; i < tokens; ++i) {
      const int64_t target = targets_[token + i] - column;
      if (target >= 0 && target < columns) {
        s_.target_logit[token + i] = logits[i * kVocabTile + target];
      }
    }
    const int64_t statistics = column / kVocabTile * count_ + token;
    void* kept = op_.dx == nullptr ? nullptr : At(s_.dlogits, token * s_.stride + column, type_);
    ExponentialRows(logits, kVocabTile, tokens, columns, s_.tile_max + statistics,
                    s_.tile_sum + statistics, type_, kept, s_.stride);
    return absl::OkStatus();
  }

  void AddLosses() {
    const int64_t tiles = TilesOf(op_.vocab);
    for (int64_t i = 0; i < count_; ++i) {
      if (targets_[i] < 0) continue;
      float largest = s_.tile_max[i];
      for (int64_t t = 1; t < tiles; ++t) {
        largest = std::max(largest, s_.tile_max[t * count_ + i]);
      }
      double sum = 0;
      for (int64_t t = 0; t < tiles; ++t) {
        sum += static_cast<double>(s_.tile_sum[t * count_ + i]) *
               std::exp(s_.tile_max[t * count_ + i] - largest);
      }
      const double log_sum_exp = largest + std::log(sum);
      s_.log_sum_exp[i] = static_cast<float>(log_sum_exp);
      *op_.loss_sum += log_sum_exp - s_.target_logit[i];
    }
  }

  void Differentiate() {
    context_.pool->ParallelFor(count_, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        void* row = At(s_.dlogits, i * s_.stride, type_);
        const int32_t target = targets_[i];
        for (int64_t column = 0; column < op_.vocab; column += kVocabTile) {
          const float tile_max = s_.tile_max[column / kVocabTile * count_ + i];
          const float factor =
              target < 0 ? 0.0f : std::exp(tile_max - s_.log_sum_exp[i]) * op_.gradient_scale;
          ScaleInPlace(At(row, column, type_), type_, std::min(kVocabTile, op_.vocab - column),
                       factor);
        }
        if (target >= 0) {
          // From the logit itself: p − 1 would lose digits in the rounded p.
          const float gradient =
              std::expm1(s_.target_logit[i] - s_.log_sum_exp[i]) * op_.gradient_scale;
          if (type_ == DType::kBF16) {
            static_cast<BFloat16*>(row)[target] = BFloat16::FromFloat(gradient);
          } else {
            static_cast<float*>(row)[target] = gradient;
          }
        }
      }
    });
  }

  absl::Status Products() {
    if (op_.dweight.data != nullptr) {
      MILLRACE_RETURN_IF_ERROR(ParallelProduct(
          context_, {.m = op_.vocab,
                     .n = op_.hidden,
                     .k = count_,
                     .type = type_,
                     .a = s_.dlogits,
                     .a_stride = s_.stride,
                     .a_transposed = true,
                     .b = x_,
                     .b_stride = op_.hidden,
                     .c = op_.dweight.data,
                     .c_stride = op_.hidden,
                     .c_type = op_.dweight.dtype,
                     .addend = op_.dweight.accumulate || begin_ > 0 ? op_.dweight.data : nullptr}));
    }
    // The sum over the vocabulary is too deep for one product.
    for (int64_t column = 0; column < op_.vocab; column += kVocabDepth) {
      MILLRACE_RETURN_IF_ERROR(
          ParallelProduct(context_, {.m = count_,
                                     .n = op_.hidden,
                                     .k = std::min(kVocabDepth, op_.vocab - column),
                                     .type = type_,
                                     .a = At(s_.dlogits, column, type_),
                                     .a_stride = s_.stride,
                                     .b = At(op_.weight, column * op_.hidden, type_),
                                     .b_stride = op_.hidden,
                                     .c = s_.dx,
                                     .c_stride = op_.hidden,
                                     .c_type = DType::kF32,
                                     .addend = column > 0 ? s_.dx : nullptr}));
    }
    context_.pool->ParallelFor(count_ * op_.hidden, 64, [&](int64_t begin, int64_t end) {
      Convert(s_.dx + begin, DType::kF32, At(op_.dx, begin_ * op_.hidden + begin, type_), type_,
              end - begin);
    });
    return absl::OkStatus();
  }

  const CpuContext& context_;
  const LinearCrossEntropy& op_;
  const Scratch& s_;
  const int64_t begin_, count_;
  const DType type_;
  const void* x_;
  const int32_t* targets_;
};

absl::Status Check(const LinearCrossEntropy& op) {
  if (op.token_chunk <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("linear cross-entropy: token_chunk (", op.token_chunk, ") must be positive"));
  }
  if (op.dweight.data != nullptr && op.dweight.dtype != DType::kF32 &&
      (op.dweight.accumulate || op.tokens > op.token_chunk)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "linear cross-entropy: a bf16 gradient is written once, but ", op.tokens,
        " tokens make more than one chunk of ", op.token_chunk, "; give an f32 gradient"));
  }
  for (int64_t i = 0; i < op.tokens; ++i) {
    if (op.targets[i] >= op.vocab) {
      return absl::InvalidArgumentError(
          absl::StrCat("linear cross-entropy: target ", op.targets[i], " of token ", i,
                       " is not under the vocabulary's size, ", op.vocab));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunLinearCrossEntropy(const CpuContext& context, const LinearCrossEntropy& op) {
  MILLRACE_RETURN_IF_ERROR(Check(op));
  const int64_t chunk = std::min(op.tokens, op.token_chunk);
  const int threads = context.pool->threads();
  const bool backward = op.dx != nullptr;
  MILLRACE_RETURN_IF_ERROR(CheckWorkspace(
      context, "linear cross-entropy",
      Scratch::Bytes(chunk, op.hidden, op.vocab, context.compute, threads, backward)));
  Carver carver(context.workspace);
  const Scratch scratch(carver, chunk, op.hidden, op.vocab, context.compute, threads, backward);
  for (int64_t begin = 0; begin < op.tokens; begin += chunk) {
    Chunk part(context, op, scratch, begin, std::min(chunk, op.tokens - begin));
    MILLRACE_RETURN_IF_ERROR(part.Run());
  }
  return absl::OkStatus();
}

size_t CrossEntropyWorkspaceBytes(const OpsLimits& limits, DType type, int threads) {
  if (limits.vocab == 0) return 0;
  const int64_t chunk = std::min(limits.tokens, limits.token_chunk);
  return Scratch::Bytes(chunk, limits.hidden, limits.vocab, type, threads, true);
}

}  // namespace millrace
