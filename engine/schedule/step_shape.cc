#include "engine/schedule/step_shape.h"

#include <algorithm>
#include <cstddef>

namespace millrace {
namespace {

constexpr int64_t kGoodMicroBatchTokens = 4096;

// What two threads' matrix products pack.
constexpr int64_t kPackingBytes = int64_t{21} << 19;
constexpr int64_t kChunkGranularity = 64;
constexpr int64_t kTileGranularity = 256;
// Fewer tokens than this a chunk, and adding up the projection's gradient costs more than making
// logits twice.
constexpr int64_t kFewestTokens = 256;
constexpr int64_t kMostTokensOfTiledChunk = 2048;
// More, and that gradient is a sum too deep for one product.
constexpr int64_t kMostTokens = 4096;

int64_t CeilDivide(int64_t value, int64_t by) { return (value + by - 1) / by; }

// About equal parts of `count`, each a multiple of `granularity` and `most`, itself one, at most.
int64_t EvenPart(int64_t count, int64_t most, int64_t granularity) {
  const int64_t parts = CeilDivide(count, most);
  return std::min(count, CeilDivide(CeilDivide(count, parts), granularity) * granularity);
}

// Bytes of the head for a token of a chunk: normalized, the gradient to that in f32, statistics,
// what fills up its row of logits, and two threads' logits in cache.
double TokenBytes(const ModelSpec& spec, DType compute) {
  constexpr size_t kStatisticsBytes = 64, kLogitsInCacheBytes = 2 * 256 * sizeof(float);
  return static_cast<double>(static_cast<size_t>(spec.hidden_size) *
                                 (sizeof(float) + SizeOf(compute)) +
                             kStatisticsBytes + 96 * SizeOf(compute) + kLogitsInCacheBytes);
}
// ... and for one of its logits: its gradient, and statistics of every 256.
double LogitBytes(DType compute) { return static_cast<double>(SizeOf(compute)) + 2 * 4 / 256.0; }

void ChooseHeadTiles(const ModelSpec& spec, DType compute, int64_t head_bytes, StepShape* shape) {
  const double bytes = static_cast<double>(head_bytes - kPackingBytes);
  const auto multiple = [](double count, int64_t of) {
    return std::max<int64_t>(1, static_cast<int64_t>(count) / of) * of;
  };
  const int64_t tokens = shape->tokens_per_micro_batch;
  const double token_bytes = TokenBytes(spec, compute), logit_bytes = LogitBytes(compute);
  const double fitting = bytes / (token_bytes + logit_bytes * spec.vocab_size);
  if (fitting >= static_cast<double>(std::min(tokens, kFewestTokens))) {
    shape->token_chunk = EvenPart(
        tokens, std::min(kMostTokens, multiple(fitting, kChunkGranularity)), kChunkGranularity);
    shape->vocab_tile = 0;
    return;
  }
  // Half for the tokens, half for logits.
  const int64_t most =
      std::min(kMostTokensOfTiledChunk, multiple(bytes / 2 / token_bytes, kChunkGranularity));
  shape->token_chunk = EvenPart(tokens, most, kChunkGranularity);
  const double classes = (bytes / shape->token_chunk - token_bytes) / logit_bytes;
  shape->vocab_tile =
      EvenPart(spec.vocab_size, multiple(classes, kTileGranularity), kTileGranularity);
}

}  // namespace

StepShape ChooseStepShape(const ModelSpec& spec, int64_t tokens_per_step,
                          std::optional<int64_t> tokens_per_micro_batch, int64_t sequence_length,
                          bool clip, DType compute, int64_t head_bytes) {
  StepShape shape;
  shape.longest_document = sequence_length;
  shape.clip = clip;
  const int64_t sequences = tokens_per_step / sequence_length;
  int64_t chosen = 1;
  for (int64_t n = 1; n <= sequences && n * sequence_length <= kGoodMicroBatchTokens; ++n) {
    if (sequences % n == 0) chosen = n;
  }
  shape.tokens_per_micro_batch = tokens_per_micro_batch.value_or(chosen * sequence_length);
  shape.micro_batches = tokens_per_step / shape.tokens_per_micro_batch;
  ChooseHeadTiles(spec, compute, head_bytes, &shape);
  return shape;
}

void TileVocabulary(const ModelSpec& spec, StepShape* shape) {
  if (shape->vocab_tile > 0 || spec.vocab_size <= kTileGranularity) return;
  const int64_t quarter = CeilDivide(spec.vocab_size, 4 * kTileGranularity) * kTileGranularity;
  shape->vocab_tile = EvenPart(spec.vocab_size, quarter, kTileGranularity);
}

OpsLimits MakeOpsLimits(const ModelSpec& spec, const StepShape& shape) {
  return {.tokens = shape.tokens_per_micro_batch,
          .hidden = spec.hidden_size,
          .qkv = spec.qkv_size(),
          .query = spec.query_size(),
          .mlp_in = spec.mlp_in_size(),
          .intermediate = spec.intermediate_size,
          .vocab = spec.vocab_size,
          .num_heads = spec.num_heads,
          .num_kv_heads = spec.num_kv_heads,
          .head_dim = spec.head_dim,
          .longest_document = shape.longest_document,
          .token_chunk = shape.token_chunk,
          .vocab_tile = shape.vocab_tile};
}

}  // namespace millrace
