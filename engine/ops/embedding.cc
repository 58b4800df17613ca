#include "engine/ops/embedding.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/base/status_macros.h"
#include "engine/ops/reduce_kernels.h"

namespace millrace {
namespace {

// Elements of a row that are summed together, in cache.
constexpr int64_t kColumns = 1024;

const std::byte* At(const void* data, int64_t index, DType type) {
  return static_cast<const std::byte*>(data) + index * static_cast<int64_t>(SizeOf(type));
}
std::byte* At(void* data, int64_t index, DType type) {
  return static_cast<std::byte*>(data) + index * static_cast<int64_t>(SizeOf(type));
}

absl::Status CheckIds(absl::Span<const int32_t> ids, int64_t rows, absl::string_view what) {
  for (const int32_t id : ids) {
    if (id < 0 || id >= rows) {
      return absl::InvalidArgumentError(absl::StrCat("embedding: the ", what, " ", id,
                                                     " is not one of the table's ", rows,
                                                     "; the data need the tokenizer and the "
                                                     "sequence length of this model"));
    }
  }
  return absl::OkStatus();
}

// `scale` as an operand of products of `type`.
float RoundScale(double scale, DType type) {
  const auto value = static_cast<float>(scale);
  return type == DType::kBF16 ? BFloat16::FromFloat(value).ToFloat() : value;
}

// For each row that `ids` names: gradient[row, :] += scale · Σ_{t: ids[t] = row} dy[t, :].
void Scatter(const EmbeddingScatter& op, absl::Span<const int32_t> ids, float scale, void* gradient,
             ThreadPool& pool) {
  const auto tokens = static_cast<int64_t>(ids.size());
  std::vector<int32_t> order(tokens);  // tokens by row, and in order within one
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return ids[a] < ids[b]; });
  std::vector<int64_t> starts;  // where each row's tokens start in `order`
  for (int64_t i = 0; i < tokens; ++i) {
    if (i == 0 || ids[order[i]] != ids[order[i - 1]]) starts.push_back(i);
  }
  const auto touched = static_cast<int64_t>(starts.size());
  starts.push_back(tokens);
  pool.ParallelFor(touched, [&](int64_t begin, int64_t end) {
    float sum[kColumns];
    for (int64_t r = begin; r < end; ++r) {
      const int64_t row = ids[order[starts[r]]];
      for (int64_t j = 0; j < op.hidden; j += kColumns) {
        const int64_t count = std::min(kColumns, op.hidden - j);
        std::fill(sum, sum + count, 0.0f);
        for (int64_t i = starts[r]; i < starts[r + 1]; ++i) {
          AddTo(At(op.dy, order[i] * op.hidden + j, op.dtype), op.dtype, count, sum);
        }
        if (scale != 1) ScaleInPlace(sum, DType::kF32, count, scale);
        void* elements = At(gradient, row * op.hidden + j, op.table_dtype);
        AddTo(elements, op.table_dtype, count, sum);
        Convert(sum, DType::kF32, elements, op.table_dtype, count);
      }
    }
  });
}

}  // namespace

absl::Status GatherEmbeddings(const EmbeddingGather& op, ThreadPool& pool) {
  MILLRACE_RETURN_IF_ERROR(CheckIds(op.inputs, op.vocab, "token"));
  if (op.position_table != nullptr) {
    MILLRACE_RETURN_IF_ERROR(CheckIds(op.positions, op.max_positions, "position"));
  }
  const float scale = RoundScale(op.scale, op.dtype);
  pool.ParallelFor(op.inputs.size(), [&](int64_t begin, int64_t end) {
    float sum[kColumns];
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < op.hidden; j += kColumns) {
        const int64_t count = std::min(kColumns, op.hidden - j);
        const void* row = At(op.token_table, op.inputs[i] * op.hidden + j, op.dtype);
        void* y = At(op.y, i * op.hidden + j, op.dtype);
        if (op.position_table == nullptr && scale == 1) {
          std::memcpy(y, row, count * SizeOf(op.dtype));
          continue;
        }
        Convert(row, op.dtype, sum, DType::kF32, count);
        if (scale != 1) ScaleInPlace(sum, DType::kF32, count, scale);
        if (op.position_table != nullptr) {
          AddTo(At(op.position_table, op.positions[i] * op.hidden + j, op.dtype), op.dtype, count,
                sum);
        }
        Convert(sum, DType::kF32, y, op.dtype, count);
      }
    }
  });
  return absl::OkStatus();
}

void ScatterEmbeddingGradients(const EmbeddingScatter& op, ThreadPool& pool) {
  Scatter(op, op.inputs, RoundScale(op.scale, op.dtype), op.token_table, pool);
  if (op.position_table != nullptr) Scatter(op, op.positions, 1, op.position_table, pool);
}

}  // namespace millrace
