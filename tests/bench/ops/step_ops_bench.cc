// Time of every op in one training step of a decoder, and their sum.
//
//   step_ops_bench [--model=gpt2|llama] [--batch=4] [--sequence=256] [--threads=2] [--type=bf16]
//                  [--chunk=1024] [--clock=wall|cpu]
//
// Prints one JSON object an op, then one with the sum over a step in which each block's forward
// runs twice (backward recomputes it). Times are the least of several runs.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/aligned_buffer.h"
#include "engine/base/thread_pool.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/ops/ops.h"
#include "engine/ops/rotary_table.h"

namespace millrace {
namespace {

struct Model {
  const char* name;
  int64_t layers, hidden, heads, kv_heads, head_dim, intermediate, vocab;
  bool gpt2;
};
constexpr Model kModels[] = {
    {"gpt2", 12, 768, 12, 12, 64, 3072, 50257, true},
    {"llama", 16, 1024, 16, 4, 64, 2816, 32000, false},
};

struct Options {
  Model model = kModels[0];
  int64_t batch = 4, sequence = 256, chunk = 1024;
  int threads = 2;
  DType type = DType::kBF16;
  bool cpu_clock = false;
};

class Bench {
 public:
  explicit Bench(const Options& o)
      : o_(o),
        m_(o.model),
        pool_(o.threads),
        device_(CreateCpuDevice(0).value()),
        stream_(device_->CreateStream("bench")),
        ops_(CreateCpuOps(o.type, &pool_)) {
    const int64_t t = tokens();
    const OpsLimits limits{.tokens = t,
                           .hidden = m_.hidden,
                           .qkv = qkv(),
                           .query = query(),
                           .mlp_in = mlp_in(),
                           .intermediate = m_.intermediate,
                           .vocab = m_.vocab,
                           .num_heads = m_.heads,
                           .num_kv_heads = m_.kv_heads,
                           .head_dim = m_.head_dim,
                           .longest_document = o.sequence,
                           .token_chunk = o.chunk};
    workspace_ = AlignedBuffer::Allocate(ops_->WorkspaceBytes(limits), "workspace").value();
    ops_->SetWorkspace(workspace_.data(), workspace_.size());
    std::printf("{\"workspace_bytes\": %zu, \"peak_gflops\": %.0f}\n", workspace_.size(),
                MeasureMatmulPeak(o.type, &pool_) / 1e9);
  }

  void Run() {
    const int64_t t = tokens(), h = m_.hidden;
    void *x = Fill(t * h), *y = Fill(t * h), *residual = Fill(t * h), *norm = Fill(h);
    auto *mean = static_cast<float*>(Fill(2 * t)), *rstd = static_cast<float*>(Fill(2 * t));
    void* gradient = Fill(2 * h * std::max(mlp_in(), qkv()));
    const auto grad = [&](void* p) { return GradientTarget{p, o_.type, false}; };
    Time("norm_forward", 4 * m_.layers + 1, 0, 2 * t * h,
         NormForward{.layer_norm = m_.gpt2,
                     .tokens = t,
                     .width = h,
                     .epsilon = 1e-5,
                     .x = x,
                     .weight = norm,
                     .bias = m_.gpt2 ? norm : nullptr,
                     .y = y,
                     .mean = mean,
                     .rstd = rstd});
    Time("norm_backward", 2 * m_.layers + 1, 0, 4 * t * h,
         NormBackward{.layer_norm = m_.gpt2,
                      .tokens = t,
                      .width = h,
                      .dy = y,
                      .x = x,
                      .weight = norm,
                      .mean = mean,
                      .rstd = rstd,
                      .residual = residual,
                      .dx = residual,
                      .dweight = grad(gradient),
                      .dbias = grad(gradient)});
    Linear("qkv", h, qkv(), false, gradient);
    Linear("output", query(), h, true, gradient);
    Linear("mlp_in", h, mlp_in(), false, gradient);
    Linear("mlp_out", m_.intermediate, h, true, gradient);

    void *fused = Fill(t * qkv()), *dfused = Fill(t * qkv());
    void *attended = Fill(t * query()), *dattended = Fill(t * query());
    auto* lse = static_cast<float*>(Fill(2 * t * m_.heads));
    std::vector<int32_t> boundaries, positions;
    for (int64_t i = 0; i <= o_.batch; ++i)
      boundaries.push_back(static_cast<int32_t>(i * o_.sequence));
    for (int64_t i = 0; i < t; ++i) positions.push_back(static_cast<int32_t>(i % o_.sequence));
    if (!m_.gpt2) {
      auto* table = static_cast<float*>(Fill(2 * o_.sequence * m_.head_dim));
      FillRotaryTable({}, m_.head_dim, o_.sequence, o_.sequence, table);
      Time("rotary", 3 * m_.layers, 0, 2 * t * (query() + m_.kv_heads * m_.head_dim),
           Rotary{.tokens = t,
                  .heads = m_.heads + m_.kv_heads,
                  .head_dim = m_.head_dim,
                  .rotary_width = m_.head_dim,
                  .row_stride = qkv(),
                  .positions = positions.data(),
                  .cos_sin_table = table,
                  .x = fused});
    }
    const auto column = [&](int64_t elements) {
      return static_cast<const std::byte*>(fused) + elements * SizeOf(o_.type);
    };
    const AttentionInput input = {.tokens = t,
                                  .num_heads = m_.heads,
                                  .num_kv_heads = m_.kv_heads,
                                  .head_dim = m_.head_dim,
                                  .boundaries = boundaries,
                                  .scale = 0.125f,
                                  .q = fused,
                                  .k = column(query()),
                                  .v = column(query() + m_.kv_heads * m_.head_dim),
                                  .q_stride = qkv(),
                                  .k_stride = qkv(),
                                  .v_stride = qkv()};
    const double scores = 0.5 * static_cast<double>(t) * o_.sequence * query();
    Time("attention_forward", 2 * m_.layers, 4 * scores, 0,
         AttentionForward{.input = input, .output = attended, .log_sum_exp = lse});
    Time("attention_backward", m_.layers, 10 * scores, 0,
         AttentionBackward{.input = input,
                           .output = attended,
                           .log_sum_exp = lse,
                           .doutput = dattended,
                           .dqkv = dfused});

    void *wide = Fill(t * mlp_in()), *active = Fill(t * m_.intermediate);
    Activation activation{.kind = m_.gpt2 ? ActivationKind::kGeluTanh : ActivationKind::kSilu,
                          .gated = !m_.gpt2,
                          .tokens = t,
                          .width = m_.intermediate,
                          .x = wide,
                          .y = active};
    Time("activation_forward", 2 * m_.layers, 0, t * (mlp_in() + m_.intermediate), activation);
    activation.y = nullptr;
    activation.dy = active;
    activation.dx = Fill(t * mlp_in());
    Time("activation_backward", m_.layers, 0, t * (2 * mlp_in() + m_.intermediate), activation);

    double loss = 0;
    std::vector<int32_t> targets(t);
    for (int64_t i = 0; i < t; ++i) targets[i] = static_cast<int32_t>(i * 7919 % m_.vocab);
    const int64_t chunk = std::min(t, o_.chunk), chunks = t / chunk;
    const bool once = chunks == 1;
    Time("cross_entropy", chunks, 6.0 * chunk * h * m_.vocab, 0,
         LinearCrossEntropy{.tokens = chunk,
                            .hidden = h,
                            .vocab = m_.vocab,
                            .x = x,
                            .weight = Fill(h * m_.vocab),
                            .targets = targets.data(),
                            .gradient_scale = 1e-3f,
                            .loss_sum = &loss,
                            .dx = y,
                            .dweight = {Fill((once ? 1 : 2) * h * m_.vocab),
                                        once ? o_.type : DType::kF32, !once}});
    std::printf("{\"model\": \"%s\", \"tokens\": %ld, \"step_ms\": %.1f}\n", m_.name,
                static_cast<long>(t), step_ms_);
  }

 private:
  int64_t tokens() const { return o_.batch * o_.sequence; }
  int64_t qkv() const { return (m_.heads + 2 * m_.kv_heads) * m_.head_dim; }
  int64_t query() const { return m_.heads * m_.head_dim; }
  int64_t mlp_in() const { return m_.gpt2 ? m_.intermediate : 2 * m_.intermediate; }

  double Now() const {
    timespec now;
    clock_gettime(o_.cpu_clock ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  }

  // Memory of `count` elements of the compute type, small numbers.
  void* Fill(int64_t count) {
    buffers_.push_back(AlignedBuffer::Allocate(count * SizeOf(o_.type), "bench").value());
    uint32_t state = 1;
    for (int64_t i = 0; i < count; ++i) {
      state = state * 1664525 + 1013904223;
      const float value = static_cast<float>(state >> 8) * 0x1p-24f - 0.5f;
      if (o_.type == DType::kBF16) {
        buffers_.back().as<BFloat16>()[i] = BFloat16::FromFloat(value);
      } else {
        buffers_.back().as<float>()[i] = value;
      }
    }
    return buffers_.back().data();
  }

  void Linear(const std::string& name, int64_t in, int64_t out, bool residual, void* gradient) {
    const int64_t t = tokens();
    void *x = Fill(t * in), *y = Fill(t * out), *weight = Fill(in * out), *bias = Fill(out);
    void* dx = Fill(t * in);
    const double flops = 2.0 * t * in * out;
    Time(name + "_forward", 2 * m_.layers, flops, 0,
         LinearForward{.tokens = t,
                       .in = in,
                       .out = out,
                       .x = x,
                       .weight = weight,
                       .bias = m_.gpt2 ? bias : nullptr,
                       .residual = residual ? y : nullptr,
                       .y = y,
                       .y_dtype = o_.type});
    LinearBackward op{
        .tokens = t, .in = in, .out = out, .dy = y, .x = x, .weight = weight, .dx = dx};
    Time(name + "_dx", m_.layers, flops, 0, op);
    op.dx = nullptr;
    op.dweight = {gradient, o_.type, false};
    Time(name + "_dweight", m_.layers, flops, 0, op);
    if (!m_.gpt2) return;
    op.dweight = {};
    op.dbias = {gradient, o_.type, false};
    Time(name + "_dbias", m_.layers, 0, t * out, op);
  }

  template <typename Op>
  void Time(const std::string& name, int64_t calls, double flops, int64_t elements, const Op& op) {
    double best = 1e9, total = 0;
    for (int i = 0; i < 3 || (total < 0.25 && i < 200); ++i) {
      const double start = Now();
      ops_->Run(*stream_, op);
      const double seconds = Now() - start;
      if (const absl::Status status = stream_->Synchronize(); !status.ok()) {
        std::fprintf(stderr, "%s: %s\n", name.c_str(), status.ToString().c_str());
        std::exit(1);
      }
      best = std::min(best, seconds);
      total += seconds;
    }
    step_ms_ += best * calls * 1e3;
    std::printf("{\"op\": \"%s\", \"ms\": %.3f, \"calls\": %ld, \"step_ms\": %.2f", name.c_str(),
                best * 1e3, static_cast<long>(calls), best * calls * 1e3);
    if (flops > 0) std::printf(", \"gflops\": %.0f", flops / best / 1e9);
    if (elements > 0) {
      std::printf(", \"gbytes_per_s\": %.1f",
                  static_cast<double>(elements) * SizeOf(o_.type) / best / 1e9);
    }
    std::printf("}\n");
    std::fflush(stdout);
  }

  const Options o_;
  const Model m_;
  ThreadPool pool_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Ops> ops_;
  AlignedBuffer workspace_;
  std::vector<AlignedBuffer> buffers_;
  double step_ms_ = 0;
};

int Main(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const size_t equals = argument.find('=');
    const std::string_view key = argument.substr(0, equals);
    const std::string value(equals == std::string_view::npos ? "" : argument.substr(equals + 1));
    if (key == "--model") {
      for (const Model& m : kModels) {
        if (value == m.name) o.model = m;
      }
    } else if (key == "--batch") {
      o.batch = std::atoll(value.c_str());
    } else if (key == "--sequence") {
      o.sequence = std::atoll(value.c_str());
    } else if (key == "--chunk") {
      o.chunk = std::atoll(value.c_str());
    } else if (key == "--threads") {
      o.threads = std::atoi(value.c_str());
    } else if (key == "--clock") {
      o.cpu_clock = value == "cpu";
    } else if (key == "--type") {
      o.type = value == "f32" ? DType::kF32 : DType::kBF16;
    } else {
      std::fprintf(stderr, "unknown option: %s\n", argv[i]);
      return 2;
    }
  }
  Bench(o).Run();
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::Main(argc, argv); }
