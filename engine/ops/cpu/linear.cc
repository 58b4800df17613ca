#include "engine/ops/cpu/linear.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/status_macros.h"
#include "engine/ops/reduce_kernels.h"

namespace millrace {
namespace {

// Tiles begin at multiples of this many rows and columns, so that vectors and hardware tiles are
// whole.
constexpr int64_t kGrain = 64;
// Columns of a bias gradient that one thread sums at a time.
constexpr int64_t kColumnBlock = 512;

struct Grid {
  int rows, columns;
};

// The division of `threads` into rows × columns whose largest tile is smallest; among equals the
// one that reads least, a tile's m + n elements for each k. What is packed is read twice, and all
// operands are but an `a` in rows.
Grid GridOf(const Product& product, int threads) {
  const int64_t m = product.m, n = product.n, row_reads = product.a_transposed ? 2 : 1;
  const auto edge_of = [row_reads](int64_t height, int64_t width) {
    return row_reads * height + 2 * width;
  };
  Grid best = {1, 1};
  int64_t best_area = m * n, best_edge = edge_of(m, n);
  const auto share = [](int64_t size, int parts) {
    return std::min(size, ((size + kGrain - 1) / kGrain + parts - 1) / parts * kGrain);
  };
  for (int rows = 1; rows <= threads; ++rows) {
    const Grid grid = {rows, threads / rows};
    const int64_t height = share(m, grid.rows), width = share(n, grid.columns);
    const int64_t edge = edge_of(height, width);
    if (height * width < best_area || (height * width == best_area && edge < best_edge)) {
      best = grid;
      best_area = height * width;
      best_edge = edge;
    }
  }
  return best;
}

absl::Status CheckTarget(const GradientTarget& target) {
  if (target.data != nullptr && target.accumulate && target.dtype != DType::kF32) {
    return absl::InvalidArgumentError(
        "a gradient that is added to must be f32; bf16 is written once");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ParallelProduct(const CpuContext& context, const Product& product) {
  const Grid grid = GridOf(product, context.pool->threads());
  return RunOnThreads(context, [&](int thread) -> absl::Status {
    if (thread >= grid.rows * grid.columns) return absl::OkStatus();
    const auto rows = ThreadPool::Split(product.m, kGrain, thread / grid.columns, grid.rows);
    const auto columns = ThreadPool::Split(product.n, kGrain, thread % grid.columns, grid.columns);
    Product tile = product;
    tile.m = rows.end - rows.begin;
    tile.n = columns.end - columns.begin;
    tile.a =
        At(product.a, rows.begin * (product.a_transposed ? 1 : product.a_stride), product.type);
    tile.b =
        At(product.b, columns.begin * (product.b_transposed ? product.b_stride : 1), product.type);
    tile.c = At(product.c, rows.begin * product.c_stride + columns.begin, product.c_type);
    if (product.addend != nullptr) {
      tile.addend =
          At(product.addend, rows.begin * product.c_stride + columns.begin, product.c_type);
    }
    if (product.bias != nullptr) tile.bias = At(product.bias, columns.begin, product.type);
    return context.matmul->Run(thread, tile);
  });
}

absl::Status RunLinearForward(const CpuContext& context, const LinearForward& op) {
  if (op.tokens == 0) return absl::OkStatus();
  return ParallelProduct(context, {.m = op.tokens,
                                   .n = op.out,
                                   .k = op.in,
                                   .type = context.compute,
                                   .a = op.x,
                                   .a_stride = op.in,
                                   .b = op.weight,
                                   .b_stride = op.in,
                                   .b_transposed = true,
                                   .c = op.y,
                                   .c_stride = op.out,
                                   .c_type = op.y_dtype,
                                   .bias = op.bias,
                                   .addend = op.residual});
}

absl::Status RunLinearBackward(const CpuContext& context, const LinearBackward& op) {
  MILLRACE_RETURN_IF_ERROR(CheckTarget(op.dweight));
  MILLRACE_RETURN_IF_ERROR(CheckTarget(op.dbias));
  const DType type = context.compute;
  if (op.tokens == 0) {
    for (const auto& [target, count] :
         {std::pair(op.dweight, op.in * op.out), std::pair(op.dbias, op.out)}) {
      if (target.data != nullptr && !target.accumulate) {
        std::memset(target.data, 0, count * SizeOf(target.dtype));
      }
    }
    return absl::OkStatus();
  }
  if (op.dx != nullptr) {
    MILLRACE_RETURN_IF_ERROR(ParallelProduct(context, {.m = op.tokens,
                                                       .n = op.in,
                                                       .k = op.out,
                                                       .type = type,
                                                       .a = op.dy,
                                                       .a_stride = op.out,
                                                       .b = op.weight,
                                                       .b_stride = op.in,
                                                       .c = op.dx,
                                                       .c_stride = op.in,
                                                       .c_type = type}));
  }
  if (op.dweight.data != nullptr) {
    MILLRACE_RETURN_IF_ERROR(
        ParallelProduct(context, {.m = op.out,
                                  .n = op.in,
                                  .k = op.tokens,
                                  .type = type,
                                  .a = op.dy,
                                  .a_stride = op.out,
                                  .a_transposed = true,
                                  .b = op.x,
                                  .b_stride = op.in,
                                  .c = op.dweight.data,
                                  .c_stride = op.in,
                                  .c_type = op.dweight.dtype,
                                  .addend = op.dweight.accumulate ? op.dweight.data : nullptr}));
  }
  if (op.dbias.data != nullptr) {
    // Each column by one thread, over all tokens: the same sum for any number of threads.
    context.pool->ParallelFor(op.out, kGrain, [&](int64_t begin, int64_t end) {
      float sums[kColumnBlock];
      for (int64_t j = begin; j < end; j += kColumnBlock) {
        const int64_t count = std::min(kColumnBlock, end - j);
        ColumnSums(At(op.dy, j, type), type, op.tokens, count, op.out, sums);
        StoreGradient(sums, op.dbias, j, count);
      }
    });
  }
  return absl::OkStatus();
}

size_t LinearWorkspaceBytes(const OpsLimits&) { return 0; }

}  // namespace millrace
