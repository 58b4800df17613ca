#include "engine/schedule/op_rates.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/base/aligned_buffer.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/ops/rotary_table.h"
#include "engine/schedule/timing.h"

namespace millrace {
namespace {

constexpr int64_t kTokens = 1024;
constexpr int64_t kWidth = 2048;
constexpr int64_t kVocab = 4096;
constexpr int64_t kVocabTile = 2048;

double Real(int64_t value) { return static_cast<double>(value); }

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
        written_(compute, pool),
        recent_(compute, pool) {
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
    workspace_ =
        MeasurementMemory(std::max(ops_->WorkspaceBytes(limits), ops_->WorkspaceBytes(tiled)));
    ops_->SetWorkspace(workspace_.data(), workspace_.size());
    statistics_ = MeasurementMemory(kTokens * kWidth / 64 * 2 * sizeof(float));
    rstd_ = statistics_.as<float>();
    for (int64_t i = 0; i < kTokens * kWidth / 64 * 2; ++i) rstd_[i] = 1.0f;
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
  void* Recent(int64_t rows, int64_t columns) { return recent_.Take(Bytes(rows, columns)); }

  // `make` gives an op with the operands of the next call.
  template <typename Make>
  double Seconds(const Make& make) {
    std::optional<decltype(make())> op;
    return TypicalSeconds([&] { ops_->Run(*stream_, *op); },
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
                                                    .x = Recent(t, in),
                                                    .weight = Read(in, out),
                                                    .y = Written(t, out),
                                                    .y_dtype = compute_};
                             }));
          rates[1].push_back(flops / Seconds([&] {
                               LinearBackward op{.tokens = t,
                                                 .in = in,
                                                 .out = out,
                                                 .dy = Recent(t, out),
                                                 .x = Recent(t, in),
                                                 .weight = Read(in, out)};
                               op.dx = Written(t, in);
                               return op;
                             }));
          rates[2].push_back(flops / Seconds([&] {
                               LinearBackward op{.tokens = t,
                                                 .in = in,
                                                 .out = out,
                                                 .dy = Recent(t, out),
                                                 .x = Read(t, in),
                                                 .weight = Recent(1, 1)};
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

  struct BothWays {
    double forward, backward;
  };
  static constexpr int64_t kAttentionHeads = 8;

  BothWays AttentionSeconds(int64_t document, int64_t head_dim, float softcap) {
    const int64_t width = kAttentionHeads * head_dim;
    std::vector<int32_t> boundaries;
    for (int64_t end = 0; end <= kTokens; end += document) {
      boundaries.push_back(static_cast<int32_t>(end));
    }
    const auto input = [&](const void* qkv) {
      const auto column = [&](int64_t elements) {
        return static_cast<const std::byte*>(qkv) + elements * SizeOf(compute_);
      };
      return AttentionInput{.tokens = kTokens,
                            .num_heads = kAttentionHeads,
                            .num_kv_heads = kAttentionHeads,
                            .head_dim = head_dim,
                            .boundaries = boundaries,
                            .scale = 0.1f,
                            .softcap = softcap,
                            .q = qkv,
                            .k = column(width),
                            .v = column(2 * width),
                            .q_stride = 3 * width,
                            .k_stride = 3 * width,
                            .v_stride = 3 * width};
    };
    const auto op = [&] {
      return AttentionForward{.input = input(Recent(kTokens, 3 * width)),
                              .output = Written(kTokens, width),
                              .log_sum_exp = rstd_};
    };
    const double forward = Seconds(op);
    // The statistics of what is differentiated.
    const void* qkv = Read(kTokens, 3 * width);
    AttentionForward statistics = op();
    statistics.input = input(qkv);
    ops_->Run(*stream_, statistics);
    return {forward, Seconds([&] {
              return AttentionBackward{.input = input(qkv),
                                       .output = statistics.output,
                                       .log_sum_exp = rstd_,
                                       .doutput = Recent(kTokens, width),
                                       .dqkv = Written(kTokens, 3 * width)};
            })};
  }

  // Of all heads.
  static double Scores(int64_t document) {
    return Real(kAttentionHeads) * Real(kTokens) * (Real(document) + 1) / 2;
  }

  void AttentionRates(DeviceProfile& profile) {
    const std::vector<int64_t> documents = {64, 256, kTokens}, head_dims = {64, 128};
    std::vector<double> forward, backward;
    BothWays seconds;
    for (int64_t document : documents) {
      for (int64_t head_dim : head_dims) {
        const double flops = 4 * Real(head_dim) * Scores(document);
        seconds = AttentionSeconds(document, head_dim, 0);
        forward.push_back(flops / seconds.forward);
        backward.push_back(2 * flops / seconds.backward);
      }
    }
    profile.attention_forward = RateGrid({documents, head_dims}, forward);
    profile.attention_backward = RateGrid({documents, head_dims}, backward);

    // Beside the last.
    const BothWays capped = AttentionSeconds(documents.back(), head_dims.back(), 50);
    const double scores = 2 * Scores(documents.back());
    profile.softcap_rate =
        scores / std::max(capped.forward - seconds.forward + capped.backward - seconds.backward,
                          scores / 1e12);
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
                                  .x = Recent(t, width),
                                  .weight = weight,
                                  .targets = targets.data(),
                                  .gradient_scale = 1e-3f,
                                  .loss_sum = &loss};
            op.vocab_tile = vocab_tile;
            if (!backward) return op;
            op.dx = Written(t, width);
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
                             .x = Recent(kTokens, kWidth),
                             .weight = Recent(1, kWidth),
                             .y = Written(kTokens, kWidth),
                             .rstd = rstd_};
        }));
    set(DevicePass::kNormBackward, 4 * row_bytes, Seconds([&] {
          void* dx = Recent(kTokens, kWidth);
          NormBackward op{.layer_norm = false,
                          .tokens = kTokens,
                          .width = kWidth,
                          .dy = Recent(kTokens, kWidth),
                          .x = Read(kTokens, kWidth),
                          .weight = Recent(1, kWidth),
                          .rstd = rstd_,
                          .residual = dx,
                          .dx = dx};
          op.dweight = {.data = Written(1, kWidth), .dtype = compute_};
          return op;
        }));
    constexpr int64_t kHeadDim = 64, kHeads = kWidth / kHeadDim;
    std::vector<float> table(kTokens * kHeadDim);
    FillRotaryTable({}, kHeadDim, kTokens, kTokens, table.data());
    std::vector<int32_t> positions(kTokens);
    for (int64_t i = 0; i < kTokens; ++i) positions[i] = static_cast<int32_t>(i);
    set(DevicePass::kRotary, 4 * row_bytes, Seconds([&] {
          return Rotary{.tokens = kTokens,
                        .heads = 2 * kHeads,
                        .head_dim = kHeadDim,
                        .rotary_width = kHeadDim,
                        .row_stride = 3 * kWidth,
                        .positions = positions.data(),
                        .cos_sin_table = table.data(),
                        .x = Recent(kTokens, 3 * kWidth)};
        }));
    const auto activation = [&] {
      return Activation{.kind = ActivationKind::kSilu,
                        .gated = true,
                        .tokens = kTokens,
                        .width = kWidth,
                        .x = Recent(kTokens, 2 * kWidth)};
    };
    set(DevicePass::kActivationForward, 3 * row_bytes, Seconds([&] {
          Activation op = activation();
          op.y = Written(kTokens, kWidth);
          return op;
        }));
    set(DevicePass::kActivationBackward, 5 * row_bytes, Seconds([&] {
          Activation op = activation();
          op.x = Read(kTokens, 2 * kWidth);
          op.dy = Recent(kTokens, kWidth);
          op.dx = Written(kTokens, 2 * kWidth);
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
                          .dy = Recent(256, kWidth),
                          .x = Recent(256, kWidth),
                          .weight = Recent(1, 1)};
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
  // Saved or uploaded long ago; written now; and what the op before has just left.
  MeasurementRing read_, written_, recent_;
  AlignedBuffer workspace_, statistics_;
  float* rstd_ = nullptr;
};

}  // namespace

void MeasureOpRates(DType compute, ThreadPool& pool, DeviceProfile& profile) {
  OpsMeasurement(compute, pool).Into(profile);
}

}  // namespace millrace
