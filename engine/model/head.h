// The head of every family: final norm, projection onto the vocabulary, cross-entropy.
#ifndef MILLRACE_ENGINE_MODEL_HEAD_H_
#define MILLRACE_ENGINE_MODEL_HEAD_H_

#include <cstddef>
#include <cstdint>

#include "engine/model/block.h"

namespace millrace {

// Weights of the head as they lie on the device. With tied embeddings `projection` points into the
// embedding's slab.
struct HeadWeights {
  const SlabLayout& layout;
  const void* slab;
  const void* projection;  // [vocab, hidden]
};

struct HeadGradient {
  SlabGradient slab;
  GradientTarget projection;
};

struct HeadLoss {
  const int32_t* targets;  // [tokens], host; negative: ignored
  float gradient_scale;    // 1 / unmasked tokens of the step
  int64_t token_chunk;
  double* loss_sum;  // host; added to
};

size_t HeadScratchBytes(const ModelSpec& spec, int64_t tokens, DType dtype);

// Adds the loss of x[tokens, hidden]; forward and backward together: dx is its gradient.
void HeadForwardBackward(const PassContext& pass, const HeadWeights& weights, const HeadLoss& loss,
                         const void* x, void* scratch, void* dx, const HeadGradient& gradient);

// Adds the loss alone.
void HeadForward(const PassContext& pass, const HeadWeights& weights, const HeadLoss& loss,
                 const void* x, void* scratch);

// logits[vocab], f32, of the last token.
void HeadLogits(const PassContext& pass, const HeadWeights& weights, const void* x, void* scratch,
                float* logits);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_HEAD_H_
