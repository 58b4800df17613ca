#include "engine/ops/embedding.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

namespace millrace {
namespace {

float Load(const void* data, DType dtype, int64_t i) {
  return dtype == DType::kF32 ? static_cast<const float*>(data)[i]
                              : static_cast<const BFloat16*>(data)[i].ToFloat();
}

void Store(void* data, DType dtype, int64_t i, float value) {
  if (dtype == DType::kF32) {
    static_cast<float*>(data)[i] = value;
  } else {
    static_cast<BFloat16*>(data)[i] = BFloat16::FromFloat(value);
  }
}

// Adds dy to the rows of one table, each row by one thread.
void Scatter(absl::Span<const int32_t> rows, const EmbeddingScatter& op, void* table,
             ThreadPool& pool) {
  // Tokens in order of their rows, those of one row in order of time.
  std::vector<int32_t> order(rows.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return rows[a] < rows[b]; });
  std::vector<int64_t> starts;  // of each row's run in `order`
  for (size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || rows[order[i]] != rows[order[i - 1]]) starts.push_back(static_cast<int64_t>(i));
  }
  const int64_t runs = static_cast<int64_t>(starts.size());
  starts.push_back(static_cast<int64_t>(order.size()));

  pool.ParallelFor(runs, [&](int64_t begin, int64_t end) {
    std::vector<float> sum(static_cast<size_t>(op.hidden));
    for (int64_t run = begin; run < end; ++run) {
      std::fill(sum.begin(), sum.end(), 0.0f);
      for (int64_t i = starts[run]; i < starts[run + 1]; ++i) {
        const int64_t first = order[i] * op.hidden;
        for (int64_t c = 0; c < op.hidden; ++c) sum[c] += Load(op.dy, op.dtype, first + c);
      }
      const int64_t first = rows[order[starts[run]]] * op.hidden;
      for (int64_t c = 0; c < op.hidden; ++c) {
        Store(table, op.table_dtype, first + c, Load(table, op.table_dtype, first + c) + sum[c]);
      }
    }
  });
}

}  // namespace

void GatherEmbeddings(const EmbeddingGather& op, ThreadPool& pool) {
  const int64_t tokens = static_cast<int64_t>(op.inputs.size());
  const size_t row_bytes = static_cast<size_t>(op.hidden) * SizeOf(op.dtype);
  pool.ParallelFor(tokens, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t token_row = op.inputs[t] * op.hidden;
      std::byte* y = static_cast<std::byte*>(op.y) + static_cast<size_t>(t) * row_bytes;
      if (op.position_table == nullptr) {
        std::memcpy(y,
                    static_cast<const std::byte*>(op.token_table) +
                        static_cast<size_t>(token_row) * SizeOf(op.dtype),
                    row_bytes);
        continue;
      }
      const int64_t position_row = op.positions[t] * op.hidden;
      for (int64_t c = 0; c < op.hidden; ++c) {
        Store(y, op.dtype, c,
              Load(op.token_table, op.dtype, token_row + c) +
                  Load(op.position_table, op.dtype, position_row + c));
      }
    }
  });
}

void ScatterEmbeddingGradients(const EmbeddingScatter& op, ThreadPool& pool) {
  Scatter(op.inputs, op, op.token_table, pool);
  if (op.position_table != nullptr) Scatter(op.positions, op, op.position_table, pool);
}

}  // namespace millrace
