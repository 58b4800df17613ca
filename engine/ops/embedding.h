// Embedding tables, on the host: gather of the rows that a batch uses, and scatter-add of their
// gradients, so that only those rows travel to and from a device.
#ifndef MILLRACE_ENGINE_OPS_EMBEDDING_H_
#define MILLRACE_ENGINE_OPS_EMBEDDING_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/base/dtype.h"
#include "engine/base/thread_pool.h"

namespace millrace {

// y[t] = scale · token_table[inputs[t]] + position_table[positions[t]]; y[tokens, hidden]. The
// scale is rounded to `dtype` first, as models that have one are trained.
struct EmbeddingGather {
  absl::Span<const int32_t> inputs;  // ids of rows
  absl::Span<const int32_t> positions;
  int64_t hidden, vocab, max_positions;
  DType dtype;  // of tables and y
  double scale = 1;
  const void* token_table;               // [vocab, hidden]
  const void* position_table = nullptr;  // [max_positions, hidden], or none
  void* y;
};
// INVALID_ARGUMENT names an id that is not a row's; nothing is gathered then.
absl::Status GatherEmbeddings(const EmbeddingGather& op, ThreadPool& pool);

// For ids that GatherEmbeddings took:
// token_table[inputs[t]] += scale · dy[t]; position_table[positions[t]] += dy[t]. Rows that are hit
// more than once are summed in f32 in the order of t and added once; other rows are not touched.
// Results do not depend on the number of threads.
struct EmbeddingScatter {
  absl::Span<const int32_t> inputs;
  absl::Span<const int32_t> positions;
  int64_t hidden;
  DType dtype;        // of dy
  double scale = 1;   // as in EmbeddingGather
  const void* dy;     // [tokens, hidden]
  DType table_dtype;  // of the gradient tables
  void* token_table;
  void* position_table = nullptr;  // or none
};
void ScatterEmbeddingGradients(const EmbeddingScatter& op, ThreadPool& pool);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_EMBEDDING_H_
