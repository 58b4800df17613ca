// What the CPU's ops share: threads, matrix products, and scratch memory.
#ifndef MILLRACE_ENGINE_OPS_CPU_CONTEXT_H_
#define MILLRACE_ENGINE_OPS_CPU_CONTEXT_H_

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/base/aligned_buffer.h"
#include "engine/base/dtype.h"
#include "engine/base/thread_pool.h"
#include "engine/ops/cpu/matmul.h"
#include "engine/ops/ops.h"

namespace millrace {

struct CpuContext {
  DType compute;
  ThreadPool* pool;
  Matmul* matmul;
  std::byte* workspace = nullptr;
  size_t workspace_bytes = 0;
};

// Calls function(thread) on every thread; the error of the first thread that has one.
absl::Status RunOnThreads(const CpuContext& context,
                          absl::FunctionRef<absl::Status(int thread)> function);

// RESOURCE_EXHAUSTED unless the bound workspace has `bytes`.
absl::Status CheckWorkspace(const CpuContext& context, absl::string_view op, size_t bytes);

// Hands out consecutive cache-line aligned pieces of memory, or only adds up their sizes when there
// is none, so that one piece of code tells how much it needs and takes it.
class WorkspaceCarver {
 public:
  explicit WorkspaceCarver(std::byte* memory) : memory_(memory) {}

  template <typename T>
  T* Take(int64_t count) {
    std::byte* piece = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += AlignUp(static_cast<size_t>(count) * sizeof(T), 64);
    return reinterpret_cast<T*>(piece);
  }
  void* Take(int64_t count, DType type) { return Take<std::byte>(count * SizeOf(type)); }
  size_t used() const { return used_; }

 private:
  std::byte* memory_;
  size_t used_ = 0;
};

// Element `index` of a tensor of `type`.
inline const void* At(const void* data, int64_t index, DType type) {
  return static_cast<const std::byte*>(data) + index * static_cast<int64_t>(SizeOf(type));
}
inline void* At(void* data, int64_t index, DType type) {
  return static_cast<std::byte*>(data) + index * static_cast<int64_t>(SizeOf(type));
}

// Elements [begin, begin + count) of `target` become, or are increased by, `values`.
void StoreGradient(const float* values, const GradientTarget& target, int64_t begin, int64_t count);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_CPU_CONTEXT_H_
