#include "engine/schedule/host_rates.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "engine/base/aligned_buffer.h"
#include "engine/device/cpu/copy.h"
#include "engine/ops/embedding.h"
#include "engine/optim/gradient_norm.h"
#include "engine/optim/optimizer.h"
#include "engine/schedule/timing.h"
#include "engine/state/host_state.h"

namespace millrace {
namespace {

constexpr int64_t kTokens = 1024;
constexpr int64_t kWidth = 2048;
// Elements of a slab.
constexpr int64_t kStreamed = int64_t{16} << 20;

double Real(int64_t value) { return static_cast<double>(value); }

// What the host's threads do with memory.
class HostMeasurement {
 public:
  HostMeasurement(DType compute, ThreadPool& pool) : compute_(compute), pool_(pool) {}

  void Into(DeviceProfile& profile) {
    Streams(profile);
    Embedding(profile);
    Updates(profile);
  }

 private:
  void SetPass(DeviceProfile& profile, HostPass pass, double bytes, double seconds) {
    profile.host.pass_core_bandwidth[static_cast<size_t>(pass)] =
        bytes / seconds / Real(pool_.threads());
  }

  void Streams(DeviceProfile& profile) {
    AlignedBuffer memory = MeasurementMemory(3 * kStreamed * sizeof(float));
    float* a = memory.as<float>();
    float *b = a + kStreamed, *c = b + kStreamed;
    const double triad = TypicalSeconds([&] {
      pool_.ParallelFor(kStreamed, 2048, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) a[i] = b[i] + 0.5f * c[i];
      });
    });
    // The line that is written is read first.
    profile.host.memory_bandwidth = 4.0 * kStreamed * sizeof(float) / triad;
    const double copy = TypicalSeconds([&] { CopyMemory(a, b, kStreamed * sizeof(float)); });
    profile.copy_bandwidth = kStreamed * sizeof(float) / copy;
    SlabLayout layout{.kind = UnitKind::kBlock, .count = kStreamed};
    layout.tensors.push_back({.role = TensorRole::kQkv, .rows = 1, .columns = kStreamed});
    double sum = 0;
    SetPass(profile, HostPass::kGradientNorm, Real(kStreamed) * Real(SizeOf(compute_)),
            TypicalSeconds(
                [&] { sum += GradientSumOfSquares(layout, {.data = a, .dtype = compute_}, pool_); },
                [&] { Evict(a, kStreamed * SizeOf(compute_)); }));
    SetPass(profile, HostPass::kClear, kStreamed * sizeof(float), TypicalSeconds([&] {
              pool_.ParallelFor(kStreamed, [=](int64_t begin, int64_t end) {
                std::memset(a + begin, 0, static_cast<size_t>(end - begin) * sizeof(float));
              });
            }));
  }

  void Embedding(DeviceProfile& profile) {
    constexpr int64_t kRows = 4096;
    AlignedBuffer table = MeasurementMemory(kRows * kWidth * sizeof(float));
    AlignedBuffer rows = MeasurementMemory(kTokens * kWidth * sizeof(float));
    std::vector<int32_t> ids(kTokens), positions(kTokens, 0);
    for (int64_t i = 0; i < kTokens; ++i) ids[i] = static_cast<int32_t>(i * 1031 % kRows);
    const double row_bytes = Real(kTokens * kWidth) * Real(SizeOf(compute_));
    SetPass(profile, HostPass::kGather, 2 * row_bytes, TypicalSeconds([&] {
              GatherEmbeddings({.inputs = ids,
                                .positions = positions,
                                .hidden = kWidth,
                                .vocab = kRows,
                                .max_positions = 1,
                                .dtype = compute_,
                                .token_table = table.data(),
                                .y = rows.data()},
                               pool_)
                  .IgnoreError();
            }));
    SetPass(profile, HostPass::kScatter, row_bytes + 8 * Real(kTokens * kWidth),
            TypicalSeconds([&] {
              ScatterEmbeddingGradients({.inputs = ids,
                                         .positions = positions,
                                         .hidden = kWidth,
                                         .dtype = compute_,
                                         .dy = rows.data(),
                                         .table_dtype = DType::kF32,
                                         .token_table = table.data()},
                                        pool_);
            }));
  }

  // Core seconds a parameter of the optimizer's pass; 0 when memory is short.
  double Update(Recipe recipe) {
    SlabLayout layout{.kind = UnitKind::kBlock, .count = kStreamed};
    layout.tensors.push_back({.role = TensorRole::kQkv, .rows = 1, .columns = kStreamed});
    auto state = HostState::Create({layout}, recipe, compute_, pool_);
    AlignedBuffer gradient = MeasurementMemory(kStreamed * SizeOf(compute_));
    if (!state.ok()) return 0;
    pool_.ParallelFor(static_cast<int64_t>(gradient.size()), 2048, [&](int64_t begin, int64_t end) {
      std::memset(gradient.data() + begin, 0x3a, static_cast<size_t>(end - begin));
    });
    const OptimizerStep step{.step = 1, .learning_rate = 1e-4};
    const double seconds = TypicalSeconds(
        [&] {
          UpdateUnit(**state, 0, {.data = gradient.data(), .dtype = compute_}, step, 1.0, pool_);
        },
        [&] {
          Evict(gradient.data(), gradient.size());
          Evict((*state)->StreamedWeights(0), (*state)->StreamedBytes(0));
        });
    return seconds * Real(pool_.threads()) / Real(kStreamed);
  }

  void Updates(DeviceProfile& profile) {
    profile.host.update.plain_core_seconds =
        Update(compute_ == DType::kBF16 ? Recipe::kFull : Recipe::kFp32);
    profile.host.update.quantized_core_seconds = Update(Recipe::kLean);
  }

  const DType compute_;
  ThreadPool& pool_;
};

}  // namespace

void MeasureHostRates(DType compute, ThreadPool& pool, DeviceProfile& profile) {
  profile.host.cores = pool.threads();
  HostMeasurement(compute, pool).Into(profile);
}

}  // namespace millrace
