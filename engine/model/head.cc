#include "engine/model/head.h"

#include <algorithm>

#include "absl/functional/function_ref.h"
#include "engine/model/carver.h"

namespace millrace {
namespace {

// Of one chunk.
struct Scratch {
  Scratch(const ModelSpec& spec, int64_t chunk, DType dtype, void* base) {
    Carver carver(base);
    normed = carver.Take(chunk * spec.hidden_size, SizeOf(dtype));
    rstd = carver.TakeFloats(chunk);
    mean = carver.TakeFloats(chunk);
    bytes = carver.used();
  }

  void* normed;  // and then its gradient
  float *rstd, *mean;
  size_t bytes;
};

SoftmaxStatistics StatisticsIn(void* memory, int64_t tokens, size_t* bytes = nullptr) {
  Carver carver(memory);
  SoftmaxStatistics statistics{.max = carver.TakeFloats(tokens),
                               .sum = carver.TakeFloats(tokens),
                               .target_logit = carver.TakeFloats(tokens)};
  if (bytes != nullptr) *bytes = carver.used();
  return statistics;
}

SoftmaxStatistics From(const SoftmaxStatistics& statistics, int64_t token) {
  return {statistics.max + token, statistics.sum + token, statistics.target_logit + token};
}

GradientTarget AddingTo(GradientTarget target, bool add) {
  target.accumulate = target.accumulate || add;
  return target;
}

// Tokens [begin, begin + count) of a pass.
class Chunk {
 public:
  Chunk(const PassContext& pass, const HeadWeights& weights, const void* x, int64_t begin,
        int64_t count, const Scratch& scratch)
      : pass_(pass),
        weights_(weights),
        x_(x),
        begin_(begin),
        count_(count),
        dtype_(pass.ops.compute_dtype()),
        scratch_(scratch) {}

  int64_t begin() const { return begin_; }
  int64_t count() const { return count_; }

  void Norm() const { pass_.ops.Run(pass_.stream, FinalNorm()); }

  void CrossEntropy(const HeadLoss& loss, const GradientTarget* dprojection) const {
    LinearCrossEntropy op{.tokens = count_,
                          .hidden = hidden(),
                          .vocab = pass_.spec.vocab_size,
                          .x = scratch_.normed,
                          .weight = weights_.projection,
                          .targets = loss.targets + begin_,
                          .gradient_scale = loss.gradient_scale,
                          .vocab_tile = loss.vocab_tile,
                          .z_loss = loss.z_loss,
                          .softcap = softcap(),
                          .loss_sum = loss.loss_sum};
    if (dprojection != nullptr) {
      op.dx = scratch_.normed;
      op.dweight = AddingTo(*dprojection, begin_ > 0);
    }
    pass_.ops.Run(pass_.stream, op);
  }

  ClassTile Classes(const HeadTile& tile, const HeadLoss& loss) const {
    return {.tokens = count_,
            .hidden = hidden(),
            .vocab = pass_.spec.vocab_size,
            .first = tile.first,
            .count = tile.count,
            .x = scratch_.normed,
            .weight = tile.weights,
            .targets = loss.targets + begin_,
            .softcap = softcap()};
  }

  // Backward of the norm, from its output's gradient in the place of its output.
  void NormBackwardInto(void* dx, const SlabGradient& gradient) const {
    const NormForward norm = FinalNorm();
    const auto target = [&](TensorRole role) {
      return AddingTo(gradient.Of(weights_.layout, role), begin_ > 0);
    };
    pass_.ops.Run(pass_.stream, NormBackward{.layer_norm = norm.layer_norm,
                                             .plus_one = norm.plus_one,
                                             .tokens = count_,
                                             .width = norm.width,
                                             .dy = scratch_.normed,
                                             .x = norm.x,
                                             .weight = norm.weight,
                                             .mean = norm.mean,
                                             .rstd = norm.rstd,
                                             .dx = static_cast<std::byte*>(dx) + offset_bytes(),
                                             .dweight = target(TensorRole::kFinalNorm),
                                             .dbias = target(TensorRole::kFinalNormBias)});
  }

 private:
  int64_t hidden() const { return pass_.spec.hidden_size; }
  float softcap() const { return static_cast<float>(pass_.spec.logit_softcap); }
  size_t offset_bytes() const { return static_cast<size_t>(begin_ * hidden()) * SizeOf(dtype_); }

  NormForward FinalNorm() const {
    const bool layer_norm = pass_.spec.norm == NormKind::kLayerNorm;
    return {.layer_norm = layer_norm,
            .plus_one = pass_.spec.norm_plus_one,
            .tokens = count_,
            .width = hidden(),
            .epsilon = pass_.spec.norm_epsilon,
            .x = static_cast<const std::byte*>(x_) + offset_bytes(),
            .weight = BindTensor(weights_.layout, weights_.slab, dtype_, TensorRole::kFinalNorm),
            .bias = BindTensor(weights_.layout, weights_.slab, dtype_, TensorRole::kFinalNormBias),
            .y = scratch_.normed,
            .mean = layer_norm ? scratch_.mean : nullptr,
            .rstd = scratch_.rstd};
  }

  const PassContext& pass_;
  const HeadWeights& weights_;
  const void* x_;
  const int64_t begin_, count_;
  const DType dtype_;
  const Scratch& scratch_;
};

void ForEachChunk(const PassContext& pass, const HeadWeights& weights, const HeadLoss& loss,
                  const void* x, void* scratch_memory,
                  absl::FunctionRef<void(const Chunk& chunk)> function) {
  const int64_t tokens = std::min(pass.tokens, loss.token_chunk);
  const Scratch scratch(pass.spec, tokens, pass.ops.compute_dtype(), scratch_memory);
  for (int64_t begin = 0; begin < pass.tokens; begin += tokens) {
    const Chunk chunk(pass, weights, x, begin, std::min(tokens, pass.tokens - begin), scratch);
    chunk.Norm();
    function(chunk);
  }
}

}  // namespace

size_t HeadScratchBytes(const ModelSpec& spec, int64_t tokens, int64_t token_chunk, DType dtype) {
  return Scratch(spec, std::min(tokens, token_chunk), dtype, nullptr).bytes;
}

size_t HeadStatisticsBytes(int64_t tokens) {
  size_t bytes = 0;
  StatisticsIn(nullptr, tokens, &bytes);
  return bytes;
}

size_t HeadNormedGradientBytes(const ModelSpec& spec, int64_t tokens) {
  return static_cast<size_t>(tokens * spec.hidden_size) * sizeof(float);
}

void HeadForwardBackward(const PassContext& pass, const HeadWeights& weights, const HeadLoss& loss,
                         const void* x, void* scratch, void* dx, const HeadGradient& gradient) {
  ForEachChunk(pass, weights, loss, x, scratch, [&](const Chunk& chunk) {
    chunk.CrossEntropy(loss, &gradient.projection);
    chunk.NormBackwardInto(dx, gradient.slab);
  });
}

void HeadForward(const PassContext& pass, const HeadWeights& weights, const HeadLoss& loss,
                 const void* x, void* scratch) {
  ForEachChunk(pass, weights, loss, x, scratch,
               [&](const Chunk& chunk) { chunk.CrossEntropy(loss, nullptr); });
}

void HeadStatistics(const PassContext& pass, const HeadWeights& weights, const HeadTile& tile,
                    const HeadLoss& loss, const void* x, void* scratch, void* statistics) {
  const SoftmaxStatistics all = StatisticsIn(statistics, pass.tokens);
  ForEachChunk(pass, weights, loss, x, scratch, [&](const Chunk& chunk) {
    pass.ops.Run(pass.stream,
                 CrossEntropyStatistics{chunk.Classes(tile, loss), From(all, chunk.begin())});
  });
  if (tile.first + tile.count < pass.spec.vocab_size) return;
  pass.ops.Run(pass.stream, CrossEntropyLoss{.tokens = pass.tokens,
                                             .targets = loss.targets,
                                             .z_loss = loss.z_loss,
                                             .statistics = all,
                                             .loss_sum = loss.loss_sum});
}

void HeadTileGradient(const PassContext& pass, const HeadWeights& weights, const HeadTile& tile,
                      const HeadLoss& loss, const void* x, void* scratch, void* statistics,
                      float* normed_gradient, const GradientTarget& tile_gradient) {
  const SoftmaxStatistics all = StatisticsIn(statistics, pass.tokens);
  ForEachChunk(pass, weights, loss, x, scratch, [&](const Chunk& chunk) {
    pass.ops.Run(pass.stream, CrossEntropyGradient{
                                  .tile = chunk.Classes(tile, loss),
                                  .statistics = From(all, chunk.begin()),
                                  .gradient_scale = loss.gradient_scale,
                                  .z_loss = loss.z_loss,
                                  .dx = normed_gradient + chunk.begin() * pass.spec.hidden_size,
                                  .dweight = AddingTo(tile_gradient, chunk.begin() > 0),
                              });
  });
}

void HeadFinish(const PassContext& pass, const HeadWeights& weights, const HeadLoss& loss,
                const void* x, void* scratch_memory, const float* normed_gradient, void* dx,
                const SlabGradient& gradient) {
  const DType dtype = pass.ops.compute_dtype();
  const int64_t hidden = pass.spec.hidden_size;
  const Scratch scratch(pass.spec, std::min(pass.tokens, loss.token_chunk), dtype, scratch_memory);
  ForEachChunk(pass, weights, loss, x, scratch_memory, [&](const Chunk& chunk) {
    // In the place of the norm's output, which was made for its statistics alone.
    pass.ops.Run(pass.stream, ConvertGradient{.count = chunk.count() * hidden,
                                              .source = normed_gradient + chunk.begin() * hidden,
                                              .target = scratch.normed,
                                              .target_dtype = dtype});
    chunk.NormBackwardInto(dx, gradient);
  });
}

void HeadLogits(const PassContext& pass, const HeadWeights& weights, const HeadTile& tile,
                const void* x, int64_t begin, int64_t count, void* scratch_memory, float* logits) {
  const int64_t vocab = pass.spec.vocab_size;
  const Scratch scratch(pass.spec, count, pass.ops.compute_dtype(), scratch_memory);
  Chunk(pass, weights, x, begin, count, scratch).Norm();
  // A tile's rows lie among those of all classes.
  const bool whole = tile.count == vocab;
  const int64_t rows = whole ? count : 1;
  for (int64_t row = 0; row < count; row += rows) {
    float* const y = logits + row * vocab + tile.first;
    const auto* normed = static_cast<const std::byte*>(scratch.normed) +
                         ElementBytes(row * pass.spec.hidden_size, pass.ops.compute_dtype());
    pass.ops.Run(pass.stream, LinearForward{.tokens = rows,
                                            .in = pass.spec.hidden_size,
                                            .out = tile.count,
                                            .x = normed,
                                            .weight = tile.weights,
                                            .y = y,
                                            .y_dtype = DType::kF32});
    if (pass.spec.logit_softcap > 0) {
      pass.ops.Run(pass.stream, SoftCap{.count = rows * tile.count,
                                        .cap = static_cast<float>(pass.spec.logit_softcap),
                                        .x = y});
    }
  }
}

}  // namespace millrace
