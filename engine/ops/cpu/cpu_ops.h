// The ops on the CPU: matrix products through oneDNN, everything else in our own vector loops,
// divided among the threads of a pool.
//
//   ThreadPool pool(4);
//   std::unique_ptr<Ops> ops = CreateCpuOps(CpuHasBf16() ? DType::kBF16 : DType::kF32, &pool);
//   ops->SetWorkspace(workspace, ops->WorkspaceBytes(limits));
//   ops->Run(stream, LinearForward{...});
//
// An op is one piece of work on the host in its stream, so that a stream's error skips it.
#ifndef MILLRACE_ENGINE_OPS_CPU_CPU_OPS_H_
#define MILLRACE_ENGINE_OPS_CPU_CPU_OPS_H_

#include <cstddef>
#include <memory>

#include "engine/base/dtype.h"
#include "engine/base/thread_pool.h"
#include "engine/ops/ops.h"

namespace millrace {

// `pool` must outlive the ops. Results depend on its number of threads.
std::unique_ptr<Ops> CreateCpuOps(DType compute, ThreadPool* pool);

// What the ops of `threads` threads need: WorkspaceBytes, before there are any.
size_t CpuOpsWorkspaceBytes(const OpsLimits& limits, DType compute, int threads);

// True where the CPU has instructions for bf16 matrix products. Without them bf16 ops still work
// where oneDNN has them, slowly.
bool CpuHasBf16();

// Floating-point operations a second that large matrix products reach here: the best of a few
// shapes. Takes about a quarter of a second.
double MeasureMatmulPeak(DType type, ThreadPool* pool);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_CPU_CPU_OPS_H_
