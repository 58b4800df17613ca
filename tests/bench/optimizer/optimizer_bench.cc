// The optimizer's pass in GB/s and parameters/s, next to a triad (a = b + s·c, 12 bytes an element
// as in STREAM) on the same threads: the triad is what the memory gives, the optimizer should get
// most of it.
//
//   bazel run //tests/bench/optimizer -- --benchmark_filter=/2
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "engine/base/aligned_buffer.h"
#include "engine/base/random.h"
#include "engine/base/thread_pool.h"
#include "engine/optim/gradient_norm.h"
#include "engine/optim/optimizer.h"

namespace millrace {
namespace {

constexpr int64_t kParameters = int64_t{64} << 20;

SlabLayout Layout() {
  SlabLayout layout{.kind = UnitKind::kBlock, .index = 0};
  layout.tensors = {
      {.role = TensorRole::kQkv, .rows = kParameters, .columns = 1, .offset = 0, .decay = true}};
  layout.count = kParameters;
  return layout;
}

std::unique_ptr<HostState> MakeState(Recipe recipe, DType compute, OptimizerKind optimizer,
                                     ThreadPool& pool) {
  auto state = HostState::Create({Layout()}, recipe, compute, pool, optimizer);
  if (!state.ok()) std::abort();
  const CounterRandom random(1, 0);
  pool.ParallelFor(kParameters, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float value = static_cast<float>(random.Uniform(i) - 0.5);
      (*state)->WriteMaster(0, i, {&value, 1});
    }
  });
  return std::move(*state);
}

AlignedBuffer MakeGradient(DType dtype, ThreadPool& pool) {
  auto buffer = AlignedBuffer::Allocate(kParameters * SizeOf(dtype), "gradients");
  if (!buffer.ok()) std::abort();
  const CounterRandom random(2, 0);
  pool.ParallelFor(kParameters, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float value = static_cast<float>(random.Uniform(i) - 0.5);
      if (dtype == DType::kBF16) {
        buffer->as<BFloat16>()[i] = BFloat16::FromFloat(value);
      } else {
        buffer->as<float>()[i] = value;
      }
    }
  });
  return *std::move(buffer);
}

void ReportBandwidth(benchmark::State& bench, int64_t bytes_an_element) {
  bench.SetBytesProcessed(static_cast<int64_t>(bench.iterations()) * bytes_an_element *
                          kParameters);
}

void BM_Triad(benchmark::State& bench) {
  ThreadPool pool(static_cast<int>(bench.range(0)));
  std::vector<AlignedBuffer> buffers;
  for (int i = 0; i < 3; ++i) {
    auto buffer = AlignedBuffer::Allocate(kParameters * 4, "triad");
    if (!buffer.ok()) std::abort();
    buffers.push_back(std::move(*buffer));
    pool.ParallelFor(kParameters, [data = buffers.back().as<float>()](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) data[i] = 1.0f;
    });
  }
  float* a = buffers[0].as<float>();
  const float *b = buffers[1].as<float>(), *c = buffers[2].as<float>();
  for (auto _ : bench) {
    pool.ParallelFor(kParameters, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) a[i] = b[i] + 3.0f * c[i];
    });
    benchmark::ClobberMemory();
  }
  ReportBandwidth(bench, 12);
}

// Bytes that a pass moves: all that is kept read and written, the gradient read.
void BM_Update(benchmark::State& bench, Recipe recipe, DType compute, OptimizerKind optimizer) {
  ThreadPool pool(static_cast<int>(bench.range(0)));
  const std::unique_ptr<HostState> state = MakeState(recipe, compute, optimizer, pool);
  AlignedBuffer gradient = MakeGradient(compute, pool);
  OptimizerStep step;
  step.learning_rate = 1e-4;
  for (auto _ : bench) {
    UpdateUnit(*state, 0, {gradient.data(), compute}, step, 0.5, pool);
    ++step.step;
  }
  int64_t bytes = kParameters * static_cast<int64_t>(SizeOf(compute));
  for (const MemoryPool& memory : state->memory()) bytes += 2 * memory.bytes;
  bench.SetBytesProcessed(static_cast<int64_t>(bench.iterations()) * bytes);
  bench.SetItemsProcessed(static_cast<int64_t>(bench.iterations()) * kParameters);
}

void BM_GradientNorm(benchmark::State& bench, DType compute, int64_t bytes_an_element) {
  ThreadPool pool(static_cast<int>(bench.range(0)));
  AlignedBuffer gradient = MakeGradient(compute, pool);
  const SlabLayout layout = Layout();
  for (auto _ : bench) {
    benchmark::DoNotOptimize(GradientSumOfSquares(layout, {gradient.data(), compute}, pool));
  }
  ReportBandwidth(bench, bytes_an_element);
}

void ThreadCounts(benchmark::internal::Benchmark* bench) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  bench->Arg(1);
  if (cores > 1) bench->Arg(cores);
  bench->UseRealTime()->Unit(benchmark::kMillisecond);
}

BENCHMARK(BM_Triad)->Apply(ThreadCounts);
#define MILLRACE_UPDATE(recipe, compute, optimizer)                                              \
  BENCHMARK_CAPTURE(BM_Update, recipe##_##compute##_##optimizer, Recipe::recipe, DType::compute, \
                    OptimizerKind::optimizer)                                                    \
      ->Apply(ThreadCounts)
MILLRACE_UPDATE(kFull, kBF16, kAdamW);
MILLRACE_UPDATE(kFull, kF32, kAdamW);
MILLRACE_UPDATE(kLean, kBF16, kAdamW);
MILLRACE_UPDATE(kTiny, kBF16, kAdamW);
MILLRACE_UPDATE(kFull, kBF16, kSgd);
MILLRACE_UPDATE(kTiny, kBF16, kSgd);
MILLRACE_UPDATE(kFull, kBF16, kLion);
MILLRACE_UPDATE(kTiny, kBF16, kLion);
BENCHMARK_CAPTURE(BM_GradientNorm, bf16, DType::kBF16, 2)->Apply(ThreadCounts);
BENCHMARK_CAPTURE(BM_GradientNorm, f32, DType::kF32, 4)->Apply(ThreadCounts);

}  // namespace
}  // namespace millrace

BENCHMARK_MAIN();
