#include "engine/schedule/cpu_measurement.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

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
constexpr int64_t kVocab = 2048;
constexpr int64_t kVocabTile = 1024;
// Elements beyond every cache that is the machine's own.
constexpr int64_t kStreamed = int64_t{16} << 20;

double Real(int64_t value) { return static_cast<double>(value); }

// No measurement goes on for much longer than this, seconds.
constexpr double kEnough = 0.02;

// Seconds of the fastest of a few calls, after one that warms up.
double Least(const std::function<void()>& call, int calls = 4) {
  using Clock = std::chrono::steady_clock;
  call();
  double least = std::numeric_limits<double>::infinity(), spent = 0;
  for (int i = 0; i < calls && spent < kEnough; ++i) {
    const Clock::time_point begin = Clock::now();
    call();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    least = std::min(least, seconds);
    spent += seconds;
  }
  return std::max(least, 1e-9);
}

AlignedBuffer Memory(size_t bytes) {
  absl::StatusOr<AlignedBuffer> memory = AlignedBuffer::Allocate(bytes, "measuring the processor");
  return memory.ok() ? *std::move(memory) : AlignedBuffer();
}

// Ops of the device, on memory of their own.
class OpsMeasurement {
 public:
  OpsMeasurement(DType compute, ThreadPool& pool)
      : compute_(compute),
        size_(SizeOf(compute)),
        device_(CreateCpuDevice(0).value()),
        stream_(device_->CreateStream("measurement")),
        ops_(CreateCpuOps(compute, &pool)) {
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
    for (AlignedBuffer& buffer : buffers_) buffer = Memory(kTokens * 3 * kWidth * sizeof(float));
    for (AlignedBuffer& buffer : weights_) buffer = Memory(kWidth * 2 * kWidth * sizeof(float));
    // Numbers of ordinary size: products of zeros and of denormals have times of their own.
    for (AlignedBuffer* buffer : {&buffers_[0], &buffers_[1], &buffers_[2], &weights_[0]}) {
      FillOrdinary(*buffer);
    }
  }

  void Into(DeviceProfile& profile) {
    Products(profile);
    AttentionRates(profile);
    HeadRates(profile);
    Passes(profile);
  }

 private:
  void FillOrdinary(AlignedBuffer& buffer) {
    const int64_t count = static_cast<int64_t>(buffer.size() / size_);
    for (int64_t i = 0; i < count; ++i) {
      const float value = static_cast<float>((i * 7919) % 1021 - 510) / 2048.0f;
      if (compute_ == DType::kBF16) {
        buffer.as<BFloat16>()[i] = BFloat16::FromFloat(value);
      } else {
        buffer.as<float>()[i] = value;
      }
    }
  }

  template <typename Op>
  double Seconds(const Op& op, int calls = 4) {
    return Least([&] { ops_->Run(*stream_, op); }, calls);
  }

  void Products(DeviceProfile& profile) {
    const std::vector<int64_t> tokens = {64, 256, kTokens}, widths = {256, 768, kWidth};
    std::array<std::vector<double>, kNumProductKinds> rates;
    for (int64_t t : tokens) {
      for (int64_t in : widths) {
        for (int64_t out : widths) {
          const double flops = 2 * Real(t) * Real(in) * Real(out);
          const LinearForward forward{.tokens = t,
                                      .in = in,
                                      .out = out,
                                      .x = buffers_[0].data(),
                                      .weight = weights_[0].data(),
                                      .y = buffers_[3].data(),
                                      .y_dtype = compute_};
          const LinearBackward input{.tokens = t,
                                     .in = in,
                                     .out = out,
                                     .dy = buffers_[1].data(),
                                     .x = buffers_[0].data(),
                                     .weight = weights_[0].data(),
                                     .dx = buffers_[3].data()};
          LinearBackward weight = input;
          weight.dx = nullptr;
          weight.dweight = {.data = weights_[1].data(), .dtype = compute_};
          rates[0].push_back(flops / Seconds(forward));
          rates[1].push_back(flops / Seconds(input));
          rates[2].push_back(flops / Seconds(weight));
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
        const double pairs = Real(kTokens) * (Real(document) + 1) / 2;
        const double flops = 4 * Real(kHeads * head_dim) * pairs;
        const AttentionForward op{.tokens = kTokens,
                                  .num_heads = kHeads,
                                  .num_kv_heads = kHeads,
                                  .head_dim = head_dim,
                                  .boundaries = boundaries,
                                  .scale = 0.1f,
                                  .qkv = buffers_[0].data(),
                                  .output = buffers_[3].data(),
                                  .log_sum_exp = buffers_[4].as<float>()};
        forward.push_back(flops / Seconds(op));
        backward.push_back(2 * flops /
                           Seconds(AttentionBackward{.tokens = kTokens,
                                                     .num_heads = kHeads,
                                                     .num_kv_heads = kHeads,
                                                     .head_dim = head_dim,
                                                     .boundaries = boundaries,
                                                     .scale = 0.1f,
                                                     .qkv = buffers_[0].data(),
                                                     .output = buffers_[3].data(),
                                                     .log_sum_exp = buffers_[4].as<float>(),
                                                     .doutput = buffers_[1].data(),
                                                     .dqkv = buffers_[5].data()}));
      }
    }
    profile.attention_forward = RateGrid({documents, head_dims}, forward);
    profile.attention_backward = RateGrid({documents, head_dims}, backward);
  }

  void HeadRates(DeviceProfile& profile) {
    const std::vector<int64_t> tokens = {256, kTokens}, widths = {256, 768, kWidth};
    std::vector<double> whole, statistics, gradient;
    std::vector<int32_t> targets(kTokens);
    for (int64_t i = 0; i < kTokens; ++i) targets[i] = static_cast<int32_t>(i * 13 % kVocab);
    double loss = 0;
    for (int64_t t : tokens) {
      for (int64_t width : widths) {
        const double flops = 2 * Real(t) * Real(width) * Real(kVocab);
        LinearCrossEntropy op{.tokens = t,
                              .hidden = width,
                              .vocab = kVocab,
                              .x = buffers_[0].data(),
                              .weight = weights_[0].data(),
                              .targets = targets.data(),
                              .gradient_scale = 1e-3f,
                              .loss_sum = &loss};
        const double forward = Seconds(op, 2);
        op.dx = buffers_[3].data();
        op.dweight = {.data = weights_[1].data(), .dtype = DType::kF32, .accumulate = true};
        whole.push_back(3 * flops / Seconds(op, 2));
        op.vocab_tile = kVocabTile;
        statistics.push_back(flops / forward);
        gradient.push_back(3 * flops / std::max(Seconds(op, 2) - forward, forward));
      }
    }
    profile.head = RateGrid({tokens, widths}, whole);
    profile.head_statistics = RateGrid({tokens, widths}, statistics);
    profile.head_gradient = RateGrid({tokens, widths}, gradient);
  }

  void Passes(DeviceProfile& profile) {
    const double row_bytes = Real(kTokens * kWidth) * Real(static_cast<int64_t>(size_));
    const auto set = [&](DevicePass pass, double bytes, double seconds) {
      profile.pass_bandwidth[static_cast<size_t>(pass)] = bytes / seconds;
    };
    float* rstd = buffers_[4].as<float>();
    set(DevicePass::kNormForward, 2 * row_bytes,
        Seconds(NormForward{.layer_norm = false,
                            .tokens = kTokens,
                            .width = kWidth,
                            .epsilon = 1e-5,
                            .x = buffers_[0].data(),
                            .weight = weights_[0].data(),
                            .y = buffers_[3].data(),
                            .rstd = rstd}));
    set(DevicePass::kNormBackward, 4 * row_bytes,
        Seconds(NormBackward{.layer_norm = false,
                             .tokens = kTokens,
                             .width = kWidth,
                             .dy = buffers_[1].data(),
                             .x = buffers_[0].data(),
                             .weight = weights_[0].data(),
                             .rstd = rstd,
                             .residual = buffers_[2].data(),
                             .dx = buffers_[3].data(),
                             .dweight = {.data = weights_[1].data(), .dtype = compute_}}));
    constexpr int64_t kHeadDim = 64, kHeads = kWidth / kHeadDim;
    std::vector<float> table(kTokens * kHeadDim);
    FillRotaryTable(kTokens, kHeadDim, 10000, table.data());
    std::vector<int32_t> positions(kTokens);
    for (int64_t i = 0; i < kTokens; ++i) positions[i] = static_cast<int32_t>(i);
    set(DevicePass::kRotary, 4 * row_bytes,
        Seconds(Rotary{.tokens = kTokens,
                       .num_heads = kHeads,
                       .num_kv_heads = kHeads,
                       .head_dim = kHeadDim,
                       .row_stride = 3 * kWidth,
                       .positions = positions.data(),
                       .cos_sin_table = table.data(),
                       .qkv = buffers_[2].data()}));
    set(DevicePass::kActivationForward, 3 * row_bytes,
        Seconds(Activation{.kind = Activation::Kind::kSwiGlu,
                           .tokens = kTokens,
                           .width = kWidth,
                           .x = buffers_[0].data(),
                           .y = buffers_[3].data()}));
    set(DevicePass::kActivationBackward, 5 * row_bytes,
        Seconds(Activation{.kind = Activation::Kind::kSwiGlu,
                           .tokens = kTokens,
                           .width = kWidth,
                           .x = buffers_[0].data(),
                           .dy = buffers_[1].data(),
                           .dx = buffers_[3].data()}));
    set(DevicePass::kConvert, Real(kTokens * kWidth) * Real(4 + static_cast<int64_t>(size_)),
        Seconds(ConvertGradient{.count = kTokens * kWidth,
                                .source = buffers_[4].as<float>(),
                                .target = buffers_[3].data(),
                                .target_dtype = compute_}));
    AccumulateRate(profile);
  }

  // What adding to an f32 gradient costs beside writing one of the compute type.
  void AccumulateRate(DeviceProfile& profile) {
    LinearBackward op{.tokens = 256,
                      .in = kWidth,
                      .out = kWidth,
                      .dy = buffers_[1].data(),
                      .x = buffers_[0].data(),
                      .weight = weights_[0].data(),
                      .dweight = {.data = weights_[1].data(), .dtype = compute_}};
    const double written = Seconds(op);
    op.dweight = {.data = weights_[1].data(), .dtype = DType::kF32, .accumulate = true};
    const double added = Seconds(op);
    const double bytes = 8 * Real(kWidth * kWidth);
    profile.pass_bandwidth[static_cast<size_t>(DevicePass::kAccumulate)] =
        bytes / std::max(added - written, bytes / 1e12);
  }

  const DType compute_;
  const size_t size_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Ops> ops_;
  AlignedBuffer workspace_;
  std::array<AlignedBuffer, 6> buffers_;  // [kTokens, 3 · kWidth] f32
  std::array<AlignedBuffer, 2> weights_;  // [kWidth, 2 · kWidth] f32
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
    const double triad = Least([&] {
      pool_.ParallelFor(kStreamed, 2048, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) a[i] = b[i] + 0.5f * c[i];
      });
    });
    // The line that is written is read first.
    profile.host.memory_bandwidth = 4.0 * kStreamed * sizeof(float) / triad;
    const double copy = Least([&] { CopyMemory(a, b, kStreamed * sizeof(float)); });
    profile.copy_bandwidth = kStreamed * sizeof(float) / copy;
    SlabLayout layout{.kind = UnitKind::kBlock, .count = kStreamed};
    layout.tensors.push_back({.role = TensorRole::kQkv, .rows = 1, .columns = kStreamed});
    double sum = 0;
    SetPass(profile, HostPass::kGradientNorm, Real(kStreamed) * Real(SizeOf(compute_)), Least([&] {
              sum += GradientSumOfSquares(layout, {.data = a, .dtype = compute_}, pool_);
            }));
    SetPass(profile, HostPass::kClear, kStreamed * sizeof(float), Least([&] {
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
    SetPass(profile, HostPass::kGather, 2 * row_bytes, Least([&] {
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
    SetPass(profile, HostPass::kScatter, row_bytes + 8 * Real(kTokens * kWidth), Least([&] {
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
    const double seconds = Least(
        [&] {
          UpdateUnit(**state, 0, {.data = gradient.data(), .dtype = compute_}, step, 1.0, pool_);
        },
        2);
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
