// The head of every family: final norm, projection onto the vocabulary, cross-entropy.
//
// It goes by chunks of tokens: of a chunk the norm, the loss, and the norm backward, so that
// normalized hidden states and logits of one chunk alone exist. Gradients of weights are summed
// over chunks in ascending order, in f32 where there is more than one.
//
// With the projection on the device, HeadForwardBackward does all. Where it is streamed in tiles of
// classes, a call does one tile: all tiles in ascending order for the statistics of softmax, then
// all again for the gradients, the norm made again each time:
//
//   for (const HeadTile& tile : tiles) HeadStatistics(pass, weights, tile, loss, x, ...);
//   for (const HeadTile& tile : tiles) HeadTileGradient(pass, weights, tile, loss, x, ...);
//   HeadFinish(pass, weights, loss, x, ..., dx, gradient);
//
// Both give bitwise the same for tiles of `vocab_tile` classes.
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
  // Only the final norm is read, which comes first: without the projection, the slab's beginning is
  // enough.
  const void* slab;
  const void* projection = nullptr;  // [vocab, hidden]; not read by functions that take a tile
};

// Classes [first, first + count) of the projection.
struct HeadTile {
  int64_t first, count;
  const void* weights;  // [count, hidden], those of the tile
};

struct HeadGradient {
  SlabGradient slab;
  GradientTarget projection;
};

// All but `token_chunk` and `vocab_tile` as in LinearCrossEntropy.
struct HeadLoss {
  const int32_t* targets;  // [tokens], host; negative: ignored
  float gradient_scale;    // 1 / unmasked tokens of the step
  int64_t token_chunk;     // tokens whose logits exist at a time
  int64_t vocab_tile = 0;  // classes whose logits exist at a time; 0: all
  double z_loss = 0;
  double* loss_sum;  // host; added to
};

// Bytes of `scratch`, for each function here.
size_t HeadScratchBytes(const ModelSpec& spec, int64_t tokens, int64_t token_chunk, DType dtype);

// Adds the loss of x[tokens, hidden]; forward and backward together: dx is its gradient.
void HeadForwardBackward(const PassContext& pass, const HeadWeights& weights, const HeadLoss& loss,
                         const void* x, void* scratch, void* dx, const HeadGradient& gradient);

// Adds the loss alone.
void HeadForward(const PassContext& pass, const HeadWeights& weights, const HeadLoss& loss,
                 const void* x, void* scratch);

// Bytes of a micro-batch's statistics, which stay from its first HeadStatistics to its last
// HeadTileGradient, and of its gradient to the norm's output, f32 [tokens, hidden], which stays
// from its first HeadTileGradient to HeadFinish.
size_t HeadStatisticsBytes(int64_t tokens);
size_t HeadNormedGradientBytes(const ModelSpec& spec, int64_t tokens);

// Takes a tile into the statistics, which the first tile begins; with the last one adds the loss.
void HeadStatistics(const PassContext& pass, const HeadWeights& weights, const HeadTile& tile,
                    const HeadLoss& loss, const void* x, void* scratch, void* statistics);

// Gradients through the logits of one tile, from the statistics of all: the tile's own, [count,
// hidden], and that to the norm's output, which the first tile begins and the others add to.
void HeadTileGradient(const PassContext& pass, const HeadWeights& weights, const HeadTile& tile,
                      const HeadLoss& loss, const void* x, void* scratch, void* statistics,
                      float* normed_gradient, const GradientTarget& tile_gradient);

// Backward of the final norm, once the gradient to its output is that of all tiles: dx, and the
// norm's part of `gradient`.
void HeadFinish(const PassContext& pass, const HeadWeights& weights, const HeadLoss& loss,
                const void* x, void* scratch, const float* normed_gradient, void* dx,
                const SlabGradient& gradient);

// The tile's columns of logits[count, vocab], f32, of tokens [begin, begin + count). `scratch` as
// for a chunk of `count` tokens.
void HeadLogits(const PassContext& pass, const HeadWeights& weights, const HeadTile& tile,
                const void* x, int64_t begin, int64_t count, void* scratch, float* logits);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_HEAD_H_
