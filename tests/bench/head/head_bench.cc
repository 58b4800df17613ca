// The head of a model, forward and backward, on random tokens: prints one JSON object with its
// workspace, as planned and as measured, and its speed.
//
//   bazel run //tests/bench/head -- --tokens 65536 --vocab 152064 --hidden 256
//
// Workspace is what it takes beyond weights, hidden states, their gradients and the weights': ops
// and head scratch together. Measured is how far the process's resident set rises while the head
// runs, with all operands in memory and the workspace never touched before. With --tiled, weights
// are taken in tiles as if they were streamed; statistics of the tokens and the gradient to the
// norm's output then stay between calls and are counted apart.

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "engine/base/aligned_buffer.h"
#include "engine/base/random.h"
#include "engine/base/status_macros.h"
#include "engine/base/thread_pool.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/model/head.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/schedule/planner.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

struct Options {
  int64_t tokens = 2048, vocab = 152064, hidden = 1024;
  int64_t token_chunk = 0, vocab_tile = -1;  // as planned
  double z_loss = 0;
  bool tiled = false;
  std::string compute = CpuHasBf16() ? "bf16" : "f32";
  int threads = static_cast<int>(std::thread::hardware_concurrency());
};

// `field` of /proc/self/status, in bytes.
int64_t MemoryBytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(field + ":", 0) == 0) return std::stoll(line.substr(field.size() + 1)) * 1024;
  }
  return 0;
}

// From now on VmHWM is the highest resident set since now.
void ResetPeak() { std::ofstream("/proc/self/clear_refs") << "5"; }

ModelSpec SpecOf(const Options& o) {
  ModelSpec spec;
  spec.vocab_size = o.vocab;
  spec.hidden_size = o.hidden;
  spec.num_layers = spec.num_heads = spec.num_kv_heads = 1;
  spec.head_dim = o.hidden;
  spec.intermediate_size = o.hidden;
  spec.max_positions = 1;
  return spec;
}

class Bench {
 public:
  Bench(const Options& o, const StepShape& shape)
      : o_(o),
        shape_(shape),
        type_(o.compute == "bf16" ? DType::kBF16 : DType::kF32),
        spec_(SpecOf(o)),
        layout_(MakeSlabLayouts(spec_).back()),
        pool_(o.threads),
        device_(CreateCpuDevice(0).value()),
        stream_(device_->CreateStream("bench")),
        ops_(CreateCpuOps(type_, &pool_)) {}

  absl::Status MakeOperands() {
    MILLRACE_ASSIGN_OR_RETURN(weights_, Random(layout_.count, 0.02));
    MILLRACE_ASSIGN_OR_RETURN(x_, Random(o_.tokens * o_.hidden, 2));
    MILLRACE_ASSIGN_OR_RETURN(dx_, Random(o_.tokens * o_.hidden, 0));
    const size_t gradient_bytes = static_cast<size_t>(layout_.count) * sizeof(float);
    MILLRACE_ASSIGN_OR_RETURN(gradient_, Touched(gradient_bytes));
    if (o_.tiled) {
      MILLRACE_ASSIGN_OR_RETURN(statistics_, Touched(HeadStatisticsBytes(o_.tokens)));
      MILLRACE_ASSIGN_OR_RETURN(normed_gradient_,
                                Touched(HeadNormedGradientBytes(spec_, o_.tokens)));
    }
    const CounterRandom random(2, 0);
    for (int64_t i = 0; i < o_.tokens; ++i) {
      targets_.push_back(static_cast<int32_t>(random.Below(o_.vocab, static_cast<uint64_t>(i))));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<nlohmann::json> Measure() {
    OpsLimits limits = MakeOpsLimits(spec_, shape_);
    limits.longest_document = 0;  // of no attention
    const size_t ops_bytes = ops_->WorkspaceBytes(limits);
    const size_t scratch_bytes = HeadScratchBytes(spec_, o_.tokens, shape_.token_chunk, type_);
    {
      // Compiles the products, in a workspace that is gone afterwards.
      MILLRACE_ASSIGN_OR_RETURN(AlignedBuffer workspace, AlignedBuffer::Allocate(ops_bytes, "ops"));
      MILLRACE_ASSIGN_OR_RETURN(AlignedBuffer scratch,
                                AlignedBuffer::Allocate(scratch_bytes, "head"));
      ops_->SetWorkspace(workspace.data(), ops_bytes);
      MILLRACE_RETURN_IF_ERROR(Run(std::min(o_.tokens, shape_.token_chunk), scratch.data()));
    }
    MILLRACE_ASSIGN_OR_RETURN(AlignedBuffer workspace, AlignedBuffer::Allocate(ops_bytes, "ops"));
    MILLRACE_ASSIGN_OR_RETURN(AlignedBuffer scratch,
                              AlignedBuffer::Allocate(scratch_bytes, "head"));
    ops_->SetWorkspace(workspace.data(), ops_bytes);
    ResetPeak();
    const int64_t resident_before = MemoryBytes("VmRSS");
    loss_ = 0;
    const auto start = std::chrono::steady_clock::now();
    MILLRACE_RETURN_IF_ERROR(Run(o_.tokens, scratch.data()));
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const int64_t risen = MemoryBytes("VmHWM") - resident_before;
    const double flops = 6.0 * static_cast<double>(o_.tokens) * static_cast<double>(o_.hidden) *
                         static_cast<double>(o_.vocab);
    const bool twice = shape_.vocab_tile > 0;
    return nlohmann::json{
        {"tokens", o_.tokens},
        {"vocab", o_.vocab},
        {"hidden", o_.hidden},
        {"compute", o_.compute},
        {"threads", o_.threads},
        {"token_chunk", shape_.token_chunk},
        {"vocab_tile", shape_.vocab_tile},
        {"streamed_in_tiles", o_.tiled},
        {"planned_workspace_bytes", ops_bytes + scratch_bytes},
        {"measured_workspace_bytes", risen},
        {"between_calls_bytes", statistics_.size() + normed_gradient_.size()},
        {"seconds", seconds},
        {"tflops", flops / seconds / 1e12},
        {"tflops_with_logits_made_twice", (twice ? 8.0 / 6 : 1.0) * flops / seconds / 1e12},
        {"loss", loss_ / static_cast<double>(o_.tokens)},
    };
  }

 private:
  absl::StatusOr<AlignedBuffer> Random(int64_t count, double scale) {
    MILLRACE_ASSIGN_OR_RETURN(
        AlignedBuffer buffer,
        AlignedBuffer::Allocate(static_cast<size_t>(count) * SizeOf(type_), "operands"));
    const CounterRandom random(1, static_cast<uint64_t>(count));
    pool_.ParallelFor(count, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto value =
            static_cast<float>((2 * random.Uniform(static_cast<uint64_t>(i)) - 1) * scale);
        if (type_ == DType::kBF16) {
          buffer.as<BFloat16>()[i] = BFloat16::FromFloat(value);
        } else {
          buffer.as<float>()[i] = value;
        }
      }
    });
    return buffer;
  }

  absl::StatusOr<AlignedBuffer> Touched(size_t bytes) {
    MILLRACE_ASSIGN_OR_RETURN(AlignedBuffer buffer, AlignedBuffer::Allocate(bytes, "operands"));
    pool_.ParallelFor(static_cast<int64_t>(bytes), [&](int64_t begin, int64_t end) {
      std::fill(buffer.data() + begin, buffer.data() + end, std::byte{0});
    });
    return buffer;
  }

  absl::Status Run(int64_t tokens, void* scratch) {
    const PassContext pass{.spec = spec_,
                           .ops = *ops_,
                           .stream = *stream_,
                           .tokens = tokens,
                           .boundaries = {},
                           .positions = nullptr,
                           .rotary_table = nullptr};
    const HeadLoss loss{.targets = targets_.data(),
                        .gradient_scale = 1.0f / static_cast<float>(o_.tokens),
                        .token_chunk = shape_.token_chunk,
                        .vocab_tile = shape_.vocab_tile,
                        .z_loss = o_.z_loss,
                        .loss_sum = &loss_};
    const SlabGradient slab{gradient_.data(), DType::kF32, false};
    const GradientTarget gradient = slab.Of(layout_, TensorRole::kOutputProjection);
    const void* projection =
        BindTensor(layout_, weights_.data(), type_, TensorRole::kOutputProjection);
    const HeadWeights weights{.layout = layout_, .slab = weights_.data(), .projection = projection};
    if (!o_.tiled) {
      HeadForwardBackward(pass, weights, loss, x_.data(), scratch, dx_.data(),
                          {.slab = slab, .projection = gradient});
      return stream_->Synchronize();
    }
    const auto tile_from = [&](int64_t first) {
      return HeadTile{first, std::min(shape_.vocab_tile, o_.vocab - first),
                      static_cast<const std::byte*>(projection) +
                          static_cast<size_t>(first * o_.hidden) * SizeOf(type_)};
    };
    for (int64_t first = 0; first < o_.vocab; first += shape_.vocab_tile) {
      HeadStatistics(pass, weights, tile_from(first), loss, x_.data(), scratch, statistics_.data());
    }
    for (int64_t first = 0; first < o_.vocab; first += shape_.vocab_tile) {
      GradientTarget of_tile = gradient;
      of_tile.data = static_cast<float*>(gradient.data) + first * o_.hidden;
      HeadTileGradient(pass, weights, tile_from(first), loss, x_.data(), scratch,
                       statistics_.data(), normed_gradient_.as<float>(), of_tile);
    }
    HeadFinish(pass, weights, loss, x_.data(), scratch, normed_gradient_.as<float>(), dx_.data(),
               slab);
    return stream_->Synchronize();
  }

  const Options o_;
  const StepShape shape_;
  const DType type_;
  const ModelSpec spec_;
  const SlabLayout layout_;
  ThreadPool pool_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Ops> ops_;
  AlignedBuffer weights_, x_, dx_, gradient_, statistics_, normed_gradient_;
  std::vector<int32_t> targets_;
  double loss_ = 0;
};

absl::StatusOr<nlohmann::json> Measure(const Options& o) {
  const DType type = o.compute == "bf16" ? DType::kBF16 : DType::kF32;
  StepShape shape = ChooseStepShape(SpecOf(o), o.tokens, o.tokens, o.tokens, true, type);
  if (o.token_chunk > 0) shape.token_chunk = o.token_chunk;
  if (o.vocab_tile >= 0) shape.vocab_tile = o.vocab_tile;
  if (o.tiled && shape.vocab_tile == 0) {
    return absl::InvalidArgumentError("--tiled: there are no tiles; set --vocab_tile");
  }
  Bench bench(o, shape);
  MILLRACE_RETURN_IF_ERROR(bench.MakeOperands());
  return bench.Measure();
}

int Main(int argc, char** argv) {
  Options o;
  CLI::App app("Runs a model's head and prints one JSON object.");
  app.add_option("--tokens", o.tokens)->check(CLI::PositiveNumber);
  app.add_option("--vocab", o.vocab)->check(CLI::PositiveNumber);
  app.add_option("--hidden", o.hidden)->check(CLI::PositiveNumber);
  app.add_option("--token_chunk", o.token_chunk, "tokens at a time; 0: as planned");
  app.add_option("--vocab_tile", o.vocab_tile, "classes at a time; 0: all; -1: as planned");
  app.add_option("--z_loss", o.z_loss);
  app.add_flag("--tiled", o.tiled, "tile by tile, as if the weights were streamed");
  app.add_option("--compute", o.compute)->check(CLI::IsMember({"bf16", "f32"}));
  app.add_option("--threads", o.threads)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  const absl::StatusOr<nlohmann::json> result = Measure(o);
  if (!result.ok()) {
    std::cerr << result.status().message() << "\n";
    return 1;
  }
  std::cout << *result << std::endl;
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::Main(argc, argv); }
