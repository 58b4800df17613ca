#include "engine/schedule/cpu_measurement.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "engine/base/aligned_buffer.h"
#include "engine/device/cpu/copy.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/ops/embedding.h"
#include "engine/ops/rotary_table.h"
#include "engine/optim/gradient_norm.h"
#include "engine/optim/optimizer.h"
#include "engine/state/host_state.h"

namespace millrace {
namespace {

constexpr int64_t kTokens = 1024;
constexpr int64_t kWidth = 2048;
constexpr int64_t kVocab = 4096;
constexpr int64_t kVocabTile = 2048;
// Elements of host passes.
constexpr int64_t kStreamed = int64_t{16} << 20;
// More than a machine's own share of any cache.
constexpr size_t kRingBytes = size_t{96} << 20;

double Real(int64_t value) { return static_cast<double>(value); }

// No measurement goes on for much longer than this, seconds.
constexpr double kEnough = 0.02;
constexpr int kCalls = 3;

// Seconds of a typical call, after one that warms up: the median of a few. `prepare` comes ahead of
// each and does not count.
double Typical(
    const std::function<void()>& call, const std::function<void()>& prepare = [] {}) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  double spent = 0;
  for (int i = 0; i <= kCalls && spent < kEnough; ++i) {
    prepare();
    const Clock::time_point begin = Clock::now();
    call();
    const double last = std::chrono::duration<double>(Clock::now() - begin).count();
    // What takes that long needs no warming up.
    if (i == 0 && last < kEnough) continue;
    seconds.push_back(last);
    spent += last;
  }
  std::sort(seconds.begin(), seconds.end());
  return std::max(seconds[(seconds.size() - 1) / 2], 1e-9);
}

#if defined(__x86_64__)
__attribute__((target("clflushopt"))) void EvictQuickly(const std::byte* data, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 64) _mm_clflushopt(const_cast<std::byte*>(data) + at);
}
#endif

// Writes the lines of `bytes` bytes back to memory and out of the caches, where we know how.
void Evict(const void* data, size_t bytes) {
#if defined(__x86_64__)
  const auto* begin = static_cast<const std::byte*>(data);
  if (__builtin_cpu_supports("clflushopt")) {
    EvictQuickly(begin, bytes);
  } else {
    for (size_t at = 0; at < bytes; at += 64) _mm_clflush(begin + at);
  }
  _mm_mfence();
#else
  (void)data;
  (void)bytes;
#endif
}

AlignedBuffer Memory(size_t bytes) {
  absl::StatusOr<AlignedBuffer> memory = AlignedBuffer::Allocate(bytes, "measuring the processor");
  return memory.ok() ? *std::move(memory) : AlignedBuffer();
}

// Memory that is gone through again and again, more of it than of a core's own caches.
class Ring {
 public:
  // Filled with numbers of ordinary size: zeros and denormals have times of their own.
  Ring(DType type, ThreadPool& pool) : memory_(Memory(kRingBytes)) {
    const int64_t count = static_cast<int64_t>(memory_.size() / SizeOf(type));
    pool.ParallelFor(count, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float value = static_cast<float>((i * 7919) % 1021 - 510) / 2048.0f;
        if (type == DType::kBF16) {
          memory_.as<BFloat16>()[i] = BFloat16::FromFloat(value);
        } else {
          memory_.as<float>()[i] = value;
        }
      }
    });
  }

  void* Take(size_t bytes) {
    if (at_ + bytes > memory_.size()) at_ = 0;
    std::byte* taken = memory_.data() + at_;
    at_ += AlignUp(bytes, kSlabAlignment);
    taken_.emplace_back(taken, bytes);
    return taken;
  }

  // What was taken since is in no cache, as a step's weights are when their turn comes.
  void EvictTaken() {
    for (const auto& [data, bytes] : taken_) Evict(data, bytes);
    taken_.clear();
  }

 private:
  AlignedBuffer memory_;
  size_t at_ = 0;
  std::vector<std::pair<const void*, size_t>> taken_;
};

// Ops of the device. Each call takes from memory what a step would find there, and keeps in place
// what the op before has just written: see the comments at the operands.
class OpsMeasurement {
 public:
  OpsMeasurement(DType compute, ThreadPool& pool)
      : compute_(compute),
        size_(SizeOf(compute)),
        device_(CreateCpuDevice(0).value()),
        stream_(device_->CreateStream("measurement")),
        ops_(CreateCpuOps(compute, &pool)),
        read_(compute, pool),
        written_(compute, pool) {
    const OpsLimits limits{.tokens = kTokens,
                           .hidden = kWidth,
                           .qkv = 3 * kWidth,
                           .query = kWidth,
                           .mlp_in = 2 * kWidth,
                           .intermediate = kWidth,
                           .vocab = kVocab,
                           .num_heads = kWidth / 64,
                           .num_kv_heads = kWidth / 64,
                           .head_dim = 128,
                           .longest_document = kTokens,
                           .token_chunk = kTokens,
                           .vocab_tile = 0};
    OpsLimits tiled = limits;
    tiled.vocab_tile = kVocabTile;
    workspace_ = Memory(std::max(ops_->WorkspaceBytes(limits), ops_->WorkspaceBytes(tiled)));
    ops_->SetWorkspace(workspace_.data(), workspace_.size());
    statistics_ = Memory(kTokens * kWidth / 64 * 2 * sizeof(float));
    rstd_ = statistics_.as<float>();
    for (int64_t i = 0; i < kTokens * kWidth / 64 * 2; ++i) rstd_[i] = 1.0f;
    recent_ = read_.Take(Bytes(kTokens, 2 * kWidth));
    scratch_ = written_.Take(Bytes(kTokens, 3 * kWidth));
  }

  void Into(DeviceProfile& profile) {
    Products(profile);
    AttentionRates(profile);
    HeadRates(profile);
    Passes(profile);
  }

 private:
  size_t Bytes(int64_t rows, int64_t columns) const {
    return static_cast<size_t>(rows * columns) * size_;
  }
  void* Read(int64_t rows, int64_t columns) { return read_.Take(Bytes(rows, columns)); }
  void* Written(int64_t rows, int64_t columns) { return written_.Take(Bytes(rows, columns)); }

  // `make` gives an op with the operands of the next call.
  template <typename Make>
  double Seconds(const Make& make) {
    std::optional<decltype(make())> op;
    return Typical([&] { ops_->Run(*stream_, *op); },
                   [&] {
                     op.emplace(make());
                     read_.EvictTaken();
                   });
  }

  void Products(DeviceProfile& profile) {
    const std::vector<int64_t> tokens = {64, 256, 512, kTokens}, widths = {256, 768, kWidth};
    std::array<std::vector<double>, kNumProductKinds> rates;
    for (int64_t t : tokens) {
      for (int64_t in : widths) {
        for (int64_t out : widths) {
          const double flops = 2 * Real(t) * Real(in) * Real(out);
          rates[0].push_back(flops / Seconds([&] {
                               return LinearForward{.tokens = t,
                                                    .in = in,
                                                    .out = out,
                                                    .x = recent_,
                                                    .weight = Read(in, out),
                                                    .y = Written(t, out),
                                                    .y_dtype = compute_};
                             }));
          rates[1].push_back(flops / Seconds([&] {
                               LinearBackward op{.tokens = t,
                                                 .in = in,
                                                 .out = out,
                                                 .dy = recent_,
                                                 .x = recent_,
                                                 .weight = Read(in, out)};
                               op.dx = scratch_;
                               return op;
                             }));
          rates[2].push_back(flops / Seconds([&] {
                               LinearBackward op{.tokens = t,
                                                 .in = in,
                                                 .out = out,
                                                 .dy = recent_,
                                                 .x = Read(t, in),
                                                 .weight = recent_};
                               op.dweight = {.data = Written(in, out), .dtype = compute_};
                               return op;
                             }));
        }
      }
    }
    for (int kind = 0; kind < kNumProductKinds; ++kind) {
      profile.products[kind] = RateGrid({tokens, widths, widths}, rates[kind]);
    }
  }

  void AttentionRates(DeviceProfile& profile) {
    const std::vector<int64_t> documents = {64, 256, kTokens}, head_dims = {64, 128};
    constexpr int64_t kHeads = 8;
    std::vector<double> forward, backward;
    for (int64_t document : documents) {
      std::vector<int32_t> boundaries;
      for (int64_t end = 0; end <= kTokens; end += document) {
        boundaries.push_back(static_cast<int32_t>(end));
      }
      for (int64_t head_dim : head_dims) {
        const int64_t width = kHeads * head_dim;
        const double flops = 4 * Real(width) * Real(kTokens) * (Real(document) + 1) / 2;
        const auto op = [&] {
          return AttentionForward{.tokens = kTokens,
                                  .num_heads = kHeads,
                                  .num_kv_heads = kHeads,
                                  .head_dim = head_dim,
                                  .boundaries = boundaries,
                                  .scale = 0.1f,
                                  .qkv = recent_,
                                  .output = Written(kTokens, width),
                                  .log_sum_exp = rstd_};
        };
        forward.push_back(flops / Seconds(op));
        // The statistics of what is differentiated.
        const void* qkv = Read(kTokens, 3 * width);
        AttentionForward statistics = op();
        statistics.qkv = qkv;
        ops_->Run(*stream_, statistics);
        backward.push_back(2 * flops / Seconds([&] {
                             return AttentionBackward{.tokens = kTokens,
                                                      .num_heads = kHeads,
                                                      .num_kv_heads = kHeads,
                                                      .head_dim = head_dim,
                                                      .boundaries = boundaries,
                                                      .scale = 0.1f,
                                                      .qkv = qkv,
                                                      .output = statistics.output,
                                                      .log_sum_exp = rstd_,
                                                      .doutput = recent_,
                                                      .dqkv = scratch_};
                           }));
      }
    }
    profile.attention_forward = RateGrid({documents, head_dims}, forward);
    profile.attention_backward = RateGrid({documents, head_dims}, backward);
  }

  void HeadRates(DeviceProfile& profile) {
    const std::vector<int64_t> tokens = {256, 512, kTokens}, widths = {256, 1024};
    std::vector<double> whole, statistics, gradient;
    std::vector<int32_t> targets(kTokens);
    for (int64_t i = 0; i < kTokens; ++i) targets[i] = static_cast<int32_t>(i * 13 % kVocab);
    double loss = 0;
    // Where the chunk of tokens before has left it.
    const void* weight = Read(kVocab, kWidth);
    for (int64_t t : tokens) {
      for (int64_t width : widths) {
        const double flops = 2 * Real(t) * Real(width) * Real(kVocab);
        const auto seconds = [&](bool backward, int64_t vocab_tile) {
          return Seconds([&] {
            LinearCrossEntropy op{.tokens = t,
                                  .hidden = width,
                                  .vocab = kVocab,
                                  .x = recent_,
                                  .weight = weight,
                                  .targets = targets.data(),
                                  .gradient_scale = 1e-3f,
                                  .loss_sum = &loss};
            op.vocab_tile = vocab_tile;
            if (!backward) return op;
            op.dx = scratch_;
            op.dweight = {.data = written_.Take(sizeof(float) * kVocab * width),
                          .dtype = DType::kF32,
                          .accumulate = true};
            return op;
          });
        };
        const double forward = seconds(false, 0);
        whole.push_back(3 * flops / seconds(true, 0));
        statistics.push_back(flops / forward);
        gradient.push_back(3 * flops / std::max(seconds(true, kVocabTile) - forward, forward));
      }
    }
    profile.head = RateGrid({tokens, widths}, whole);
    profile.head_statistics = RateGrid({tokens, widths}, statistics);
    profile.head_gradient = RateGrid({tokens, widths}, gradient);
  }

  void Passes(DeviceProfile& profile) {
    const double row_bytes = static_cast<double>(Bytes(kTokens, kWidth));
    const auto set = [&](DevicePass pass, double bytes, double seconds) {
      profile.pass_bandwidth[static_cast<size_t>(pass)] = bytes / seconds;
    };
    set(DevicePass::kNormForward, 2 * row_bytes, Seconds([&] {
          return NormForward{.layer_norm = false,
                             .tokens = kTokens,
                             .width = kWidth,
                             .epsilon = 1e-5,
                             .x = recent_,
                             .weight = recent_,
                             .y = Written(kTokens, kWidth),
                             .rstd = rstd_};
        }));
    set(DevicePass::kNormBackward, 4 * row_bytes, Seconds([&] {
          NormBackward op{.layer_norm = false,
                          .tokens = kTokens,
                          .width = kWidth,
                          .dy = recent_,
                          .x = Read(kTokens, kWidth),
                          .weight = recent_,
                          .rstd = rstd_,
                          .residual = scratch_,
                          .dx = scratch_};
          op.dweight = {.data = Written(1, kWidth), .dtype = compute_};
          return op;
        }));
    constexpr int64_t kHeadDim = 64, kHeads = kWidth / kHeadDim;
    std::vector<float> table(kTokens * kHeadDim);
    FillRotaryTable(kTokens, kHeadDim, 10000, table.data());
    std::vector<int32_t> positions(kTokens);
    for (int64_t i = 0; i < kTokens; ++i) positions[i] = static_cast<int32_t>(i);
    set(DevicePass::kRotary, 4 * row_bytes, Seconds([&] {
          return Rotary{.tokens = kTokens,
                        .num_heads = kHeads,
                        .num_kv_heads = kHeads,
                        .head_dim = kHeadDim,
                        .row_stride = 3 * kWidth,
                        .positions = positions.data(),
                        .cos_sin_table = table.data(),
                        .qkv = scratch_};
        }));
    const auto activation = [&] {
      return Activation{
          .kind = Activation::Kind::kSwiGlu, .tokens = kTokens, .width = kWidth, .x = recent_};
    };
    set(DevicePass::kActivationForward, 3 * row_bytes, Seconds([&] {
          Activation op = activation();
          op.y = Written(kTokens, kWidth);
          return op;
        }));
    set(DevicePass::kActivationBackward, 5 * row_bytes, Seconds([&] {
          Activation op = activation();
          op.x = Read(kTokens, 2 * kWidth);
          op.dy = recent_;
          op.dx = scratch_;
          return op;
        }));
    set(DevicePass::kConvert, Real(kTokens * kWidth) * Real(4 + static_cast<int64_t>(size_)),
        Seconds([&] {
          return ConvertGradient{
              .count = kTokens * kWidth,
              .source = static_cast<const float*>(read_.Take(sizeof(float) * kTokens * kWidth)),
              .target = Written(kTokens, kWidth),
              .target_dtype = compute_};
        }));
    AccumulateRate(profile);
  }

  // What adding to an f32 gradient costs beside writing one of the compute type.
  void AccumulateRate(DeviceProfile& profile) {
    const auto seconds = [&](bool accumulate) {
      return Seconds([&] {
        LinearBackward op{.tokens = 256,
                          .in = kWidth,
                          .out = kWidth,
                          .dy = recent_,
                          .x = recent_,
                          .weight = recent_};
        op.dweight = {.data = written_.Take(sizeof(float) * kWidth * kWidth),
                      .dtype = accumulate ? DType::kF32 : compute_,
                      .accumulate = accumulate};
        return op;
      });
    };
    const double bytes = 8 * Real(kWidth * kWidth);
    profile.pass_bandwidth[static_cast<size_t>(DevicePass::kAccumulate)] =
        bytes / std::max(seconds(true) - seconds(false), bytes / 1e12);
  }

  const DType compute_;
  const size_t size_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Ops> ops_;
  Ring read_, written_;
  AlignedBuffer workspace_, statistics_;
  float* rstd_ = nullptr;
  void* recent_ = nullptr;   // [kTokens, 2 · kWidth], just written by somebody
  void* scratch_ = nullptr;  // [kTokens, 3 · kWidth], written all the time
};

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
    AlignedBuffer memory = Memory(3 * kStreamed * sizeof(float));
    float* a = memory.as<float>();
    float *b = a + kStreamed, *c = b + kStreamed;
    const double triad = Typical([&] {
      pool_.ParallelFor(kStreamed, 2048, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) a[i] = b[i] + 0.5f * c[i];
      });
    });
    // The line that is written is read first.
    profile.host.memory_bandwidth = 4.0 * kStreamed * sizeof(float) / triad;
    const double copy = Typical([&] { CopyMemory(a, b, kStreamed * sizeof(float)); });
    profile.copy_bandwidth = kStreamed * sizeof(float) / copy;
    SlabLayout layout{.kind = UnitKind::kBlock, .count = kStreamed};
    layout.tensors.push_back({.role = TensorRole::kQkv, .rows = 1, .columns = kStreamed});
    double sum = 0;
    SetPass(
        profile, HostPass::kGradientNorm, Real(kStreamed) * Real(SizeOf(compute_)),
        Typical([&] { sum += GradientSumOfSquares(layout, {.data = a, .dtype = compute_}, pool_); },
                [&] { Evict(a, kStreamed * SizeOf(compute_)); }));
    SetPass(profile, HostPass::kClear, kStreamed * sizeof(float), Typical([&] {
              pool_.ParallelFor(kStreamed, [=](int64_t begin, int64_t end) {
                std::memset(a + begin, 0, static_cast<size_t>(end - begin) * sizeof(float));
              });
            }));
  }

  void Embedding(DeviceProfile& profile) {
    constexpr int64_t kRows = 4096;
    AlignedBuffer table = Memory(kRows * kWidth * sizeof(float));
    AlignedBuffer rows = Memory(kTokens * kWidth * sizeof(float));
    std::vector<int32_t> ids(kTokens), positions(kTokens, 0);
    for (int64_t i = 0; i < kTokens; ++i) ids[i] = static_cast<int32_t>(i * 1031 % kRows);
    const double row_bytes = Real(kTokens * kWidth) * Real(SizeOf(compute_));
    SetPass(profile, HostPass::kGather, 2 * row_bytes, Typical([&] {
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
    SetPass(profile, HostPass::kScatter, row_bytes + 8 * Real(kTokens * kWidth), Typical([&] {
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
    AlignedBuffer gradient = Memory(kStreamed * SizeOf(compute_));
    if (!state.ok()) return 0;
    pool_.ParallelFor(static_cast<int64_t>(gradient.size()), 2048, [&](int64_t begin, int64_t end) {
      std::memset(gradient.data() + begin, 0x3a, static_cast<size_t>(end - begin));
    });
    const OptimizerStep step{.step = 1, .learning_rate = 1e-4};
    const double seconds = Typical(
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

DeviceProfile MeasureCpu(DType compute, ThreadPool& pool) {
  DeviceProfile profile;
  profile.name = "cpu";
  profile.description = "this machine's processor";
  profile.cpu = true;
  profile.host.cores = pool.threads();
  OpsMeasurement(compute, pool).Into(profile);
  HostMeasurement(compute, pool).Into(profile);
  profile.sources = {{"all rates", "measured on this machine, each op at a few sizes"}};
  return profile;
}

}  // namespace millrace
