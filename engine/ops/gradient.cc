#include "engine/ops/gradient.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "engine/ops/reduce_kernels.h"

namespace millrace {
namespace {

// Elements whose squares are summed in f32: 4096 over 64 lanes makes chains of 64 additions.
constexpr int64_t kBlock = 4096;
// Blocks whose sums are added by one thread.
constexpr int64_t kBlocksPerPart = 16;

const std::byte* At(const void* data, int64_t index, DType type) {
  return static_cast<const std::byte*>(data) + index * static_cast<int64_t>(SizeOf(type));
}

}  // namespace

double SumOfSquares(ThreadPool& pool, const void* data, DType dtype, int64_t count) {
  constexpr int64_t kPart = kBlock * kBlocksPerPart;
  const int64_t parts = (count + kPart - 1) / kPart;
  std::vector<double> sums(parts);
  pool.ParallelFor(parts, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t stop = std::min(count, (part + 1) * kPart);
      double sum = 0;
      for (int64_t i = part * kPart; i < stop; i += kBlock) {
        sum += SquareSum(At(data, i, dtype), dtype, std::min(kBlock, stop - i));
      }
      sums[part] = sum;
    }
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace millrace
