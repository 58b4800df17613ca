#include "engine/ops/cpu/norm.h"

#include <algorithm>

#include "engine/base/status_macros.h"
#include "engine/ops/cpu/norm_kernels.h"
#include "engine/ops/reduce_kernels.h"

namespace millrace {
namespace {

// Each thread's sums of the weights' gradients.
struct Scratch {
  float *dweight, *dbias;  // [threads, stride]
  int64_t stride;

  Scratch(WorkspaceCarver& carver, int64_t width, int threads) {
    stride = AlignUp(width, 16);
    dweight = carver.Take<float>(threads * stride);
    dbias = carver.Take<float>(threads * stride);
  }
};

}  // namespace

absl::Status RunNormForward(const CpuContext& context, const NormForward& op) {
  context.pool->ParallelFor(op.tokens, [&](int64_t begin, int64_t end) {
    NormForwardRows(op, context.compute, begin, end);
  });
  return absl::OkStatus();
}

absl::Status RunNormBackward(const CpuContext& context, const NormBackward& op) {
  const int threads = context.pool->threads();
  MILLRACE_RETURN_IF_ERROR(
      CheckWorkspace(context, "norm", NormWorkspaceBytes({.hidden = op.width}, threads)));
  WorkspaceCarver carver(context.workspace);
  const Scratch scratch(carver, op.width, threads);
  const bool wants_dweight = op.dweight.data != nullptr, wants_dbias = op.dbias.data != nullptr;
  context.pool->Run([&](int thread) {
    const auto range = ThreadPool::Split(op.tokens, 1, thread, threads);
    float* dweight = wants_dweight ? scratch.dweight + thread * scratch.stride : nullptr;
    float* dbias = wants_dbias ? scratch.dbias + thread * scratch.stride : nullptr;
    if (wants_dweight) std::fill(dweight, dweight + op.width, 0.0f);
    if (wants_dbias) std::fill(dbias, dbias + op.width, 0.0f);
    NormBackwardRows(op, context.compute, range.begin, range.end, dweight, dbias);
  });
  const auto store = [&](float* sums, const GradientTarget& target) {
    if (target.data == nullptr) return;
    for (int thread = 1; thread < threads; ++thread) {
      AddTo(sums + thread * scratch.stride, DType::kF32, op.width, sums);
    }
    StoreGradient(sums, target, 0, op.width);
  };
  store(scratch.dweight, op.dweight);
  store(scratch.dbias, op.dbias);
  return absl::OkStatus();
}

size_t NormWorkspaceBytes(const OpsLimits& limits, int threads) {
  WorkspaceCarver carver(nullptr);
  Scratch scratch(carver, std::max({limits.hidden, limits.query, limits.head_dim}), threads);
  return carver.used();
}

}  // namespace millrace
