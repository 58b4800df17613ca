#include "engine/ops/cpu/cpu_ops.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "engine/base/aligned_buffer.h"
#include "engine/ops/cpu/activation_kernels.h"
#include "engine/ops/cpu/attention.h"
#include "engine/ops/cpu/context.h"
#include "engine/ops/cpu/cross_entropy.h"
#include "engine/ops/cpu/linear.h"
#include "engine/ops/cpu/matmul.h"
#include "engine/ops/cpu/norm.h"
#include "engine/ops/cpu/soft_cap.h"
#include "engine/ops/reduce_kernels.h"

namespace millrace {
namespace {

absl::Status RunActivation(const CpuContext& context, const Activation& op) {
  context.pool->ParallelFor(op.tokens, [&](int64_t begin, int64_t end) {
    ActivationRows(op, context.compute, begin, end);
  });
  return absl::OkStatus();
}

absl::Status RunRotary(const CpuContext& context, const Rotary& op) {
  context.pool->ParallelFor(
      op.tokens, [&](int64_t begin, int64_t end) { RotaryRows(op, context.compute, begin, end); });
  return absl::OkStatus();
}

absl::Status RunCopyRows(const CpuContext& context, const CopyRows& op) {
  // Less than this is copied before another thread is awake.
  constexpr int64_t kBytesPerThread = 32 << 10;
  const DType type = context.compute;
  const int64_t row_bytes = op.width * static_cast<int64_t>(SizeOf(type));
  const int64_t rows_per_thread = kBytesPerThread / std::max<int64_t>(row_bytes, 1) + 1;
  context.pool->ParallelFor(op.rows, rows_per_thread, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      std::memcpy(At(op.target, row * op.target_stride, type),
                  At(op.source, row * op.source_stride, type), row_bytes);
    }
  });
  return absl::OkStatus();
}

absl::Status RunAdd(const CpuContext& context, const Add& op) {
  const DType type = context.compute;
  context.pool->ParallelFor(op.count, 4096, [&](int64_t begin, int64_t end) {
    constexpr int64_t kInCache = 1024;
    float sum[kInCache];
    for (int64_t i = begin; i < end; i += kInCache) {
      const int64_t count = std::min(kInCache, end - i);
      Convert(At(op.y, i, type), type, sum, DType::kF32, count);
      AddTo(At(op.x, i, type), type, count, sum);
      Convert(sum, DType::kF32, At(op.y, i, type), type, count);
    }
  });
  return absl::OkStatus();
}

absl::Status RunSoftCap(const CpuContext& context, const SoftCap& op) {
  context.pool->ParallelFor(op.count, 4096, [&](int64_t begin, int64_t end) {
    SoftCapInPlace(op.x + begin, end - begin, op.cap);
  });
  return absl::OkStatus();
}

absl::Status RunConvertGradient(const CpuContext& context, const ConvertGradient& op) {
  context.pool->ParallelFor(op.count, 4096, [&](int64_t begin, int64_t end) {
    Convert(op.source + begin, DType::kF32, At(op.target, begin, op.target_dtype), op.target_dtype,
            end - begin);
  });
  return absl::OkStatus();
}

size_t MatmulScratchBytes(int threads) {
  return static_cast<size_t>(threads) * Matmul::kScratchBytesPerThread;
}

class CpuOps final : public Ops {
 public:
  CpuOps(DType compute, ThreadPool* pool)
      : matmul_(pool->threads()), context_{.compute = compute, .pool = pool, .matmul = &matmul_} {}

  DType compute_dtype() const override { return context_.compute; }

  size_t WorkspaceBytes(const OpsLimits& limits) const override {
    return CpuOpsWorkspaceBytes(limits, context_.compute, context_.pool->threads());
  }

  void SetWorkspace(void* data, size_t bytes) override {
    auto* memory = static_cast<std::byte*>(data);
    const bool enough = bytes >= MatmulBytes();
    for (int thread = 0; thread < context_.pool->threads(); ++thread) {
      matmul_.SetScratch(thread,
                         enough ? memory + thread * Matmul::kScratchBytesPerThread : nullptr);
    }
    const size_t used = enough ? MatmulBytes() : 0;
    context_.workspace = memory + used;
    context_.workspace_bytes = bytes - used;
  }

  void Run(Stream& stream, const LinearForward& op) override {
    Enqueue(stream, op, RunLinearForward);
  }
  void Run(Stream& stream, const LinearBackward& op) override {
    Enqueue(stream, op, RunLinearBackward);
  }
  void Run(Stream& stream, const NormForward& op) override { Enqueue(stream, op, RunNormForward); }
  void Run(Stream& stream, const NormBackward& op) override {
    Enqueue(stream, op, RunNormBackward);
  }
  void Run(Stream& stream, const Rotary& op) override { Enqueue(stream, op, RunRotary); }
  void Run(Stream& stream, const CopyRows& op) override { Enqueue(stream, op, RunCopyRows); }
  void Run(Stream& stream, const AttentionForward& op) override {
    Enqueue(stream, op, RunAttentionForward);
  }
  void Run(Stream& stream, const AttentionBackward& op) override {
    Enqueue(stream, op, RunAttentionBackward);
  }
  void Run(Stream& stream, const Add& op) override { Enqueue(stream, op, RunAdd); }
  void Run(Stream& stream, const Activation& op) override { Enqueue(stream, op, RunActivation); }
  void Run(Stream& stream, const SoftCap& op) override { Enqueue(stream, op, RunSoftCap); }
  void Run(Stream& stream, const LinearCrossEntropy& op) override {
    Enqueue(stream, op, RunLinearCrossEntropy);
  }
  void Run(Stream& stream, const CrossEntropyStatistics& op) override {
    Enqueue(stream, op, RunCrossEntropyStatistics);
  }
  void Run(Stream& stream, const CrossEntropyLoss& op) override {
    Enqueue(stream, op, RunCrossEntropyLoss);
  }
  void Run(Stream& stream, const CrossEntropyGradient& op) override {
    Enqueue(stream, op, RunCrossEntropyGradient);
  }
  void Run(Stream& stream, const ConvertGradient& op) override {
    Enqueue(stream, op, RunConvertGradient);
  }

 private:
  size_t MatmulBytes() const { return MatmulScratchBytes(context_.pool->threads()); }

  // The context as it is now goes with the op: a later SetWorkspace is for later ops.
  template <typename Op>
  void Enqueue(Stream& stream, const Op& op,
               absl::Status (*run)(const CpuContext& context, const Op& op)) {
    stream.RunOnHost([context = context_, op, run] { return run(context, op); });
  }

  Matmul matmul_;
  CpuContext context_;
};

}  // namespace

std::unique_ptr<Ops> CreateCpuOps(DType compute, ThreadPool* pool) {
  return std::make_unique<CpuOps>(compute, pool);
}

size_t CpuOpsWorkspaceBytes(const OpsLimits& limits, DType compute, int threads) {
  const size_t largest =
      std::max({LinearWorkspaceBytes(limits), NormWorkspaceBytes(limits, threads),
                AttentionWorkspaceBytes(limits, compute, threads),
                CrossEntropyWorkspaceBytes(limits, compute, threads)});
  return MatmulScratchBytes(threads) + AlignUp(largest, kSlabAlignment);
}

bool CpuHasBf16() { return CpuMultipliesBf16(); }

double MeasureMatmulPeak(DType type, ThreadPool* pool) {
  using Clock = std::chrono::steady_clock;
  struct Case {
    int64_t m, n, k;
  };
  constexpr Case kCases[] = {{1024, 2304, 768}, {1024, 4096, 1024}};
  constexpr auto kTimePerCase = std::chrono::milliseconds(100);
  constexpr int64_t kElements = 1024 * 4096;  // room for each operand of each case
  absl::StatusOr<AlignedBuffer> buffer =
      AlignedBuffer::Allocate(3 * kElements * SizeOf(type), "measuring matrix products");
  if (!buffer.ok()) return 0;
  Matmul matmul(pool->threads());
  const CpuContext context{.compute = type, .pool = pool, .matmul = &matmul};
  double best = 0;
  for (const Case& c : kCases) {
    const Product product = {.m = c.m,
                             .n = c.n,
                             .k = c.k,
                             .type = type,
                             .a = buffer->data(),
                             .a_stride = c.k,
                             .b = At(buffer->data(), kElements, type),
                             .b_stride = c.k,
                             .b_transposed = true,
                             .c = At(buffer->data(), 2 * kElements, type),
                             .c_stride = c.n,
                             .c_type = type};
    if (!ParallelProduct(context, product).ok()) return 0;  // compiles it, too
    const Clock::time_point stop = Clock::now() + kTimePerCase;
    for (Clock::time_point start = Clock::now(); start < stop;) {
      if (!ParallelProduct(context, product).ok()) return 0;
      const Clock::time_point end = Clock::now();
      const double seconds = std::chrono::duration<double>(end - start).count();
      best = std::max(best, 2.0 * c.m * c.n * c.k / seconds);
      start = end;
    }
  }
  return best;
}

}  // namespace millrace
