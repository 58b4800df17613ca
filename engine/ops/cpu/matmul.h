// Matrix products on the calling thread, through oneDNN.
//
//   Matmul matmul(pool.threads());
//   pool.Run([&](int thread) { status[thread] = matmul.Run(thread, {.m = ..., ...}); });
//
// oneDNN's own threading is kept out: it would divide the work anew with every change of its
// environment, and spin against our pool.
#ifndef MILLRACE_ENGINE_OPS_CPU_MATMUL_H_
#define MILLRACE_ENGINE_OPS_CPU_MATMUL_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "engine/base/dtype.h"

namespace millrace {

// c[m, n] = op(a)[m, k] · op(b)[k, n] + bias[n], or the same added to c. Strides are in elements
// from one row of the matrix in memory to the next; sums are f32.
struct Product {
  int64_t m, n, k;
  DType type;  // of a, b and bias
  const void* a;
  int64_t a_stride;
  bool a_transposed = false;  // `a` lies in memory as [k, m]
  const void* b;
  int64_t b_stride;
  bool b_transposed = false;  // `b` lies in memory as [n, k]
  void* c;
  int64_t c_stride;
  DType c_type;
  const void* bias = nullptr;
  bool accumulate = false;
};

class Matmul {
 public:
  // For calls from threads 0 to threads − 1.
  explicit Matmul(int threads);
  ~Matmul();
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  // Each `thread` by one caller at a time. INTERNAL with oneDNN's message when it fails,
  // RESOURCE_EXHAUSTED when it is out of memory.
  absl::Status Run(int thread, const Product& product);

  // Scratch memory for `thread`, kScratchBytesPerThread of it; where a product needs more (or none
  // was given), the thread allocates its own.
  void SetScratch(int thread, std::byte* data);
  static constexpr size_t kScratchBytesPerThread = 4 << 20;

 private:
  class Thread;
  std::unique_ptr<std::unique_ptr<Thread>[]> threads_;
};

// True where bf16 products are faster than f32 ones.
bool CpuMultipliesBf16();

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_CPU_MATMUL_H_
