// How well the discrete device hides copies behind matrix products: prints one JSON object.
//
//   bazel run //tests/bench/overlap -- --rounds 40 --copy_bytes 14MiB
//
// A round uploads a slab into one of two slots and then multiplies, as a step does with a block.
// Measured are the products alone, the uploads alone, and both, each round's products waiting for
// its slab and each upload for its slot. Hidden is the share of the shorter that both together save
// over one after the other. Without --link_gbps the link is as slow as takes half a round's
// products; 0 is a link as fast as memory is copied.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "engine/base/aligned_buffer.h"
#include "engine/base/status_macros.h"
#include "engine/base/thread_pool.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

struct Options {
  int64_t tokens = 1024, hidden = 768, products = 12;
  size_t copy_bytes = size_t{14} << 20;
  int64_t rounds = 40;
  std::optional<double> link_gbps;
  std::string compute = CpuHasBf16() ? "bf16" : "f32";
  int threads = static_cast<int>(std::thread::hardware_concurrency());
};

class Bench {
 public:
  explicit Bench(const Options& o)
      : o_(o),
        type_(o.compute == "bf16" ? DType::kBF16 : DType::kF32),
        pool_(o.threads),
        ops_(CreateCpuOps(type_, &pool_)) {}

  absl::StatusOr<nlohmann::json> Measure() {
    const OpsLimits limits{.tokens = o_.tokens,
                           .hidden = o_.hidden,
                           .mlp_in = 4 * o_.hidden,
                           .intermediate = 4 * o_.hidden};
    const size_t x_bytes = static_cast<size_t>(o_.tokens * o_.hidden) * SizeOf(type_);
    const size_t weight_bytes = static_cast<size_t>(4 * o_.hidden * o_.hidden) * SizeOf(type_);
    const size_t workspace_bytes = ops_->WorkspaceBytes(limits);
    MILLRACE_ASSIGN_OR_RETURN(workspace_, AlignedBuffer::Allocate(workspace_bytes, "workspace"));
    ops_->SetWorkspace(workspace_.data(), workspace_bytes);
    MILLRACE_ASSIGN_OR_RETURN(x_, AlignedBuffer::Allocate(x_bytes, "input"));
    MILLRACE_ASSIGN_OR_RETURN(weight_, AlignedBuffer::Allocate(weight_bytes, "weight"));
    MILLRACE_ASSIGN_OR_RETURN(y_, AlignedBuffer::Allocate(4 * x_bytes, "output"));
    MILLRACE_ASSIGN_OR_RETURN(host_, AlignedBuffer::Allocate(kSlabs * o_.copy_bytes, "slabs"));
    std::memset(host_.data(), 1, host_.size());

    MILLRACE_ASSIGN_OR_RETURN(const double compute, Run(0, true, false));
    MILLRACE_ASSIGN_OR_RETURN(const double memory, Run(0, false, true));
    const double bytes = static_cast<double>(o_.rounds) * static_cast<double>(o_.copy_bytes);
    const double link = o_.link_gbps ? *o_.link_gbps * 1e9 : bytes / (0.5 * compute);
    MILLRACE_ASSIGN_OR_RETURN(const double copies, Run(link, false, true));
    MILLRACE_ASSIGN_OR_RETURN(const double both, Run(link, true, true));
    return nlohmann::json{
        {"program", "overlap"},
        {"threads", o_.threads},
        {"compute", o_.compute},
        {"rounds", o_.rounds},
        {"copy_bytes", o_.copy_bytes},
        {"link_bytes_per_second", link},
        {"unthrottled_bytes_per_second", bytes / memory},
        {"link_rate_ratio", link > 0 ? bytes / copies / link : 1},
        {"compute_seconds", compute},
        {"copy_seconds", copies},
        {"both_seconds", both},
        {"both_over_longer", both / std::max(compute, copies)},
        {"hidden_ratio", (compute + copies - both) / std::min(compute, copies)},
    };
  }

 private:
  static constexpr size_t kSlots = 2;
  static constexpr size_t kSlabs = 8;

  // Seconds of all rounds; the first time through, which touches memory, is left out.
  absl::StatusOr<double> Run(double link_bytes_per_second, bool multiply, bool copy) {
    MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<Device> device,
                              CreateCpuDevice({.budget_bytes = kSlots * o_.copy_bytes,
                                               .mode = CpuDeviceMode::kDiscrete,
                                               .link_bytes_per_second = link_bytes_per_second}));
    std::unique_ptr<Stream> upload = device->CreateStream("upload");
    std::unique_ptr<Stream> compute = device->CreateStream("compute");
    std::array<std::unique_ptr<Event>, kSlots> arrived, released;
    for (size_t slot = 0; slot < kSlots; ++slot) {
      arrived[slot] = device->CreateEvent();
      released[slot] = device->CreateEvent();
    }
    std::chrono::steady_clock::time_point start;
    for (int64_t rounds : {static_cast<int64_t>(kSlots), o_.rounds}) {
      start = std::chrono::steady_clock::now();
      for (size_t round = 0; round < static_cast<size_t>(rounds); ++round) {
        const size_t slot = round % kSlots;
        if (copy) {
          upload->Wait(*released[slot]);
          device->CopyToDevice(*upload, device->memory() + slot * o_.copy_bytes,
                               host_.data() + round % kSlabs * o_.copy_bytes, o_.copy_bytes);
          upload->Record(*arrived[slot]);
          compute->Wait(*arrived[slot]);
        }
        if (multiply) Multiply(*compute);
        compute->Record(*released[slot]);
      }
      MILLRACE_RETURN_IF_ERROR(upload->Synchronize());
      MILLRACE_RETURN_IF_ERROR(compute->Synchronize());
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  void Multiply(Stream& stream) {
    for (int64_t i = 0; i < o_.products; ++i) {
      ops_->Run(stream, LinearForward{.tokens = o_.tokens,
                                      .in = o_.hidden,
                                      .out = 4 * o_.hidden,
                                      .x = x_.data(),
                                      .weight = weight_.data(),
                                      .y = y_.data(),
                                      .y_dtype = type_});
    }
  }

  const Options o_;
  const DType type_;
  ThreadPool pool_;
  std::unique_ptr<Ops> ops_;
  AlignedBuffer workspace_, x_, weight_, y_, host_;
};

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures how well copies hide behind matrix products; prints one JSON object.");
  app.add_option("--tokens", options.tokens)->check(CLI::PositiveNumber);
  app.add_option("--hidden", options.hidden)->check(CLI::PositiveNumber);
  app.add_option("--products", options.products, "a round")->check(CLI::PositiveNumber);
  app.add_option("--copy_bytes", options.copy_bytes)->transform(CLI::AsSizeValue(false));
  app.add_option("--rounds", options.rounds)->check(CLI::PositiveNumber);
  app.add_option("--link_gbps", options.link_gbps, "10^9 bytes/s")->check(CLI::NonNegativeNumber);
  app.add_option("--compute", options.compute)->check(CLI::IsMember({"bf16", "f32"}));
  app.add_option("--threads", options.threads)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  const absl::StatusOr<nlohmann::json> result = Bench(options).Measure();
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
