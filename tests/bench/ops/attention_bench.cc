// Time of attention: forward and backward over documents of training, with windows and soft caps,
// and decoding, one query a sequence over a cache of keys and values.
//
//   attention_bench [--threads=2] [--type=bf16|f32] [--clock=wall|cpu]
//
// Prints one JSON object a case. Times are the least of several runs, on the CPU clock of all
// threads' time divided by their number. gigabytes_per_second is that of reading the cache once.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/base/aligned_buffer.h"
#include "engine/base/thread_pool.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/ops/ops.h"

namespace millrace {
namespace {

struct Options {
  int threads = 2;
  DType type = DType::kBF16;
  bool cpu_clock = false;
};

struct Heads {
  int64_t query, key, dim;
  int64_t row() const { return (query + 2 * key) * dim; }
};

class Bench {
 public:
  explicit Bench(const Options& o)
      : o_(o),
        pool_(o.threads),
        device_(CreateCpuDevice(0).value()),
        stream_(device_->CreateStream("bench")),
        ops_(CreateCpuOps(o.type, &pool_)) {}

  void Training(const Heads& h, int64_t length, int64_t window, float softcap) {
    constexpr int64_t kTokens = 4096;
    std::vector<int32_t> boundaries;
    for (int64_t t = 0; t <= kTokens; t += length) boundaries.push_back(static_cast<int32_t>(t));
    Limit(h, kTokens, length);
    const auto qkv = Fill(kTokens * h.row()), dqkv = Fill(kTokens * h.row());
    const int64_t outputs = kTokens * h.query * h.dim;
    const auto output = Fill(outputs), doutput = Fill(outputs);
    const auto statistics = Allocate(kTokens * h.query * sizeof(float));
    AttentionInput input = Input(h, kTokens, boundaries, *qkv);
    input.window = window;
    input.softcap = softcap;
    auto* lse = reinterpret_cast<float*>(statistics->data());
    const double forward =
        Time(AttentionForward{.input = input, .output = output->data(), .log_sum_exp = lse});
    const double backward = Time(AttentionBackward{.input = input,
                                                   .output = output->data(),
                                                   .log_sum_exp = lse,
                                                   .doutput = doutput->data(),
                                                   .dqkv = dqkv->data()});
    std::printf(
        "{\"case\": \"training\", \"tokens\": %ld, \"document\": %ld, \"heads\": %ld, "
        "\"kv_heads\": %ld, \"head_dim\": %ld, \"window\": %ld, \"softcap\": %g, "
        "\"forward_ms\": %.3f, \"backward_ms\": %.3f}\n",
        kTokens, length, h.query, h.key, h.dim, window, softcap, forward * 1e3, backward * 1e3);
    std::fflush(stdout);
  }

  void Decoding(const Heads& h, int64_t sequences, int64_t keys) {
    std::vector<int32_t> boundaries;
    std::vector<int64_t> begin, count(sequences, keys);
    for (int64_t i = 0; i <= sequences; ++i) boundaries.push_back(static_cast<int32_t>(i));
    for (int64_t i = 0; i < sequences; ++i) begin.push_back(i * keys);
    Limit(h, sequences, keys);
    const auto q = Fill(sequences * h.row()), output = Fill(sequences * h.row());
    const int64_t cache = sequences * keys * h.key * h.dim;
    const auto k = Fill(cache), v = Fill(cache);
    AttentionInput input = Input(h, sequences, boundaries, *q);
    input.key_begin = begin;
    input.key_count = count;
    input.k = k->data();
    input.v = v->data();
    input.k_stride = input.v_stride = h.key * h.dim;
    const double seconds = Time(AttentionForward{.input = input, .output = output->data()});
    const double bytes = 2.0 * static_cast<double>(cache) * static_cast<double>(SizeOf(o_.type));
    std::printf(
        "{\"case\": \"decoding\", \"sequences\": %ld, \"keys\": %ld, \"heads\": %ld, "
        "\"kv_heads\": %ld, \"head_dim\": %ld, \"ms\": %.3f, \"gigabytes_per_second\": %.2f}\n",
        sequences, keys, h.query, h.key, h.dim, seconds * 1e3, bytes / seconds * 1e-9);
    std::fflush(stdout);
  }

 private:
  // `elements` of the compute type, small numbers.
  std::unique_ptr<AlignedBuffer> Fill(int64_t elements) {
    auto buffer = Allocate(elements * SizeOf(o_.type));
    uint32_t state = 1;
    for (int64_t i = 0; i < elements; ++i) {
      state = state * 1664525 + 1013904223;
      const float x = static_cast<float>(state >> 8) * 0x1p-23f - 1;
      if (o_.type == DType::kF32) {
        reinterpret_cast<float*>(buffer->data())[i] = x;
      } else {
        reinterpret_cast<BFloat16*>(buffer->data())[i] = BFloat16::FromFloat(x);
      }
    }
    return buffer;
  }

  static std::unique_ptr<AlignedBuffer> Allocate(size_t bytes) {
    return std::make_unique<AlignedBuffer>(AlignedBuffer::Allocate(bytes, "bench").value());
  }

  void Limit(const Heads& h, int64_t tokens, int64_t longest) {
    const OpsLimits limits{.tokens = tokens,
                           .num_heads = h.query,
                           .num_kv_heads = h.key,
                           .head_dim = h.dim,
                           .longest_document = longest};
    const size_t bytes = ops_->WorkspaceBytes(limits);
    workspace_ = Allocate(bytes);
    ops_->SetWorkspace(workspace_->data(), bytes);
  }

  AttentionInput Input(const Heads& h, int64_t tokens, const std::vector<int32_t>& boundaries,
                       const AlignedBuffer& qkv) const {
    const auto size = static_cast<int64_t>(SizeOf(o_.type));
    return {.tokens = tokens,
            .num_heads = h.query,
            .num_kv_heads = h.key,
            .head_dim = h.dim,
            .boundaries = boundaries,
            .scale = 0.125f,
            .q = qkv.data(),
            .k = qkv.data() + h.query * h.dim * size,
            .v = qkv.data() + (h.query + h.key) * h.dim * size,
            .q_stride = h.row(),
            .k_stride = h.row(),
            .v_stride = h.row()};
  }

  double Now() const {
    timespec t;
    clock_gettime(o_.cpu_clock ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    const double seconds = static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
    return o_.cpu_clock ? seconds / o_.threads : seconds;
  }

  template <typename Op>
  double Time(const Op& op) {
    double best = HUGE_VAL;
    for (int run = 0; run < 8; ++run) {
      const double start = Now();
      ops_->Run(*stream_, op);
      if (const absl::Status status = stream_->Synchronize(); !status.ok()) {
        std::fprintf(stderr, "%s\n", status.ToString().c_str());
        std::exit(1);
      }
      best = std::min(best, Now() - start);
    }
    return best;
  }

  const Options o_;
  ThreadPool pool_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<AlignedBuffer> workspace_;
};

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.substr(0, 10) == "--threads=") {
      options.threads = std::max(1, std::atoi(argv[i] + 10));
    } else if (argument == "--type=f32" || argument == "--type=bf16") {
      options.type = argument == "--type=f32" ? DType::kF32 : DType::kBF16;
    } else if (argument == "--clock=cpu" || argument == "--clock=wall") {
      options.cpu_clock = argument == "--clock=cpu";
    } else {
      std::fprintf(stderr, "usage: %s [--threads=2] [--type=bf16|f32] [--clock=wall|cpu]\n",
                   argv[0]);
      return 2;
    }
  }
  Bench bench(options);
  const Heads llama = {16, 4, 64}, gemma = {4, 1, 256};
  for (const int64_t window : {0, 2048, 1024, 512, 128}) bench.Training(llama, 4096, window, 0);
  bench.Training(llama, 4096, 0, 50);
  bench.Training(gemma, 4096, 0, 0);
  bench.Training(gemma, 4096, 512, 0);
  bench.Training(gemma, 4096, 512, 50);
  bench.Decoding({9, 3, 64}, 1, 2048);
  bench.Decoding({9, 3, 64}, 16, 2048);
  bench.Decoding({16, 4, 64}, 16, 4096);
  bench.Decoding({32, 8, 128}, 8, 4096);
  bench.Decoding({12, 12, 64}, 8, 1024);
  bench.Decoding({4, 1, 256}, 16, 4096);
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::Main(argc, argv); }
