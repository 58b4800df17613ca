#include "engine/model/head.h"

#include "engine/model/carver.h"

namespace millrace {
namespace {

struct Scratch {
  Scratch(const ModelSpec& spec, int64_t tokens, DType dtype, void* base) {
    Carver carver(base);
    normed = carver.Take(tokens * spec.hidden_size, SizeOf(dtype));
    dnormed = carver.Take(tokens * spec.hidden_size, SizeOf(dtype));
    rstd = carver.TakeFloats(tokens);
    mean = carver.TakeFloats(tokens);
    bytes = carver.used();
  }

  void *normed, *dnormed;
  float *rstd, *mean;
  size_t bytes;
};

NormForward FinalNorm(const PassContext& pass, const HeadWeights& weights, int64_t first,
                      int64_t tokens, const void* x, const Scratch& scratch) {
  const ModelSpec& spec = pass.spec;
  const DType dtype = pass.ops.compute_dtype();
  const bool layer_norm = spec.norm == NormKind::kLayerNorm;
  return {.layer_norm = layer_norm,
          .tokens = tokens,
          .width = spec.hidden_size,
          .epsilon = spec.norm_epsilon,
          .x = static_cast<const std::byte*>(x) +
               static_cast<size_t>(first * spec.hidden_size) * SizeOf(dtype),
          .weight = BindTensor(weights.layout, weights.slab, dtype, TensorRole::kFinalNorm),
          .bias = BindTensor(weights.layout, weights.slab, dtype, TensorRole::kFinalNormBias),
          .y = scratch.normed,
          .mean = layer_norm ? scratch.mean : nullptr,
          .rstd = scratch.rstd};
}

LinearCrossEntropy CrossEntropy(const PassContext& pass, const HeadWeights& weights,
                                const HeadLoss& loss, const Scratch& scratch) {
  return {.tokens = pass.tokens,
          .hidden = pass.spec.hidden_size,
          .vocab = pass.spec.vocab_size,
          .x = scratch.normed,
          .weight = weights.projection,
          .targets = loss.targets,
          .gradient_scale = loss.gradient_scale,
          .token_chunk = loss.token_chunk,
          .loss_sum = loss.loss_sum};
}

}  // namespace

size_t HeadScratchBytes(const ModelSpec& spec, int64_t tokens, DType dtype) {
  return Scratch(spec, tokens, dtype, nullptr).bytes;
}

void HeadForwardBackward(const PassContext& pass, const HeadWeights& weights, const HeadLoss& loss,
                         const void* x, void* scratch_memory, void* dx,
                         const HeadGradient& gradient) {
  const Scratch scratch(pass.spec, pass.tokens, pass.ops.compute_dtype(), scratch_memory);
  const NormForward norm = FinalNorm(pass, weights, 0, pass.tokens, x, scratch);
  pass.ops.Run(pass.stream, norm);
  LinearCrossEntropy cross_entropy = CrossEntropy(pass, weights, loss, scratch);
  cross_entropy.dx = scratch.dnormed;
  cross_entropy.dweight = gradient.projection;
  pass.ops.Run(pass.stream, cross_entropy);
  pass.ops.Run(pass.stream,
               NormBackward{.layer_norm = norm.layer_norm,
                            .tokens = pass.tokens,
                            .width = norm.width,
                            .dy = scratch.dnormed,
                            .x = x,
                            .weight = norm.weight,
                            .mean = norm.mean,
                            .rstd = norm.rstd,
                            .dx = dx,
                            .dweight = gradient.slab.Of(weights.layout, TensorRole::kFinalNorm),
                            .dbias = gradient.slab.Of(weights.layout, TensorRole::kFinalNormBias)});
}

void HeadForward(const PassContext& pass, const HeadWeights& weights, const HeadLoss& loss,
                 const void* x, void* scratch_memory) {
  const Scratch scratch(pass.spec, pass.tokens, pass.ops.compute_dtype(), scratch_memory);
  pass.ops.Run(pass.stream, FinalNorm(pass, weights, 0, pass.tokens, x, scratch));
  pass.ops.Run(pass.stream, CrossEntropy(pass, weights, loss, scratch));
}

void HeadLogits(const PassContext& pass, const HeadWeights& weights, const void* x,
                void* scratch_memory, float* logits) {
  const Scratch scratch(pass.spec, pass.tokens, pass.ops.compute_dtype(), scratch_memory);
  pass.ops.Run(pass.stream, FinalNorm(pass, weights, pass.tokens - 1, 1, x, scratch));
  pass.ops.Run(pass.stream, LinearForward{.tokens = 1,
                                          .in = pass.spec.hidden_size,
                                          .out = pass.spec.vocab_size,
                                          .x = scratch.normed,
                                          .weight = weights.projection,
                                          .y = logits,
                                          .y_dtype = DType::kF32});
}

}  // namespace millrace
