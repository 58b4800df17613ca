// Matrix products on the calling thread: large ones in bf16 by amx_product.h where the CPU can, all
// others through oneDNN.
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
#include "engine/ops/cpu/amx_product.h"
#include "engine/ops/cpu/product.h"

namespace millrace {

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

  // Scratch memory for `thread`, kScratchBytesPerThread of it; without any the thread allocates its
  // own. Products that would need more are divided.
  void SetScratch(int thread, std::byte* data);
  static constexpr size_t kScratchBytesPerThread = kAmxScratchBytes;

 private:
  class Thread;
  std::unique_ptr<std::unique_ptr<Thread>[]> threads_;
};

// True where the CPU has AMX for bf16, and ONEDNN_MAX_CPU_ISA allows it.
bool CpuUsesAmx();

// True where bf16 products are faster than f32 ones.
bool CpuMultipliesBf16();

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_CPU_MATMUL_H_
