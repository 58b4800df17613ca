#include "engine/schedule/profile.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace millrace {
namespace {

constexpr double kGiga = 1e9, kTera = 1e12;

// The machine around a card, where the card's maker does not fix it.
struct Host {
  int cores;
  int64_t memory_gib;
  double bandwidth;  // GB/s, triad
  const char* source;
};
constexpr Host kOlderDesktop = {
    8, 64, 38,
    "assumed: a desktop of 8 cores with two channels of DDR4-3200, of whose 51 GB/s STREAM triad "
    "reaches three quarters"};
constexpr Host kDesktop = {
    16, 128, 65,
    "assumed: a desktop of 16 cores with two channels of DDR5-5600, of whose 90 GB/s STREAM triad "
    "reaches 72%"};
constexpr Host kServerDdr4 = {
    32, 512, 150,
    "assumed: a server socket of 32 cores with eight channels of DDR4-3200, of whose 205 GB/s "
    "STREAM triad reaches 73%"};
constexpr Host kServerDdr5 = {
    48, 1024, 245,
    "assumed: a server socket of 48 cores with eight channels of DDR5-4800, of whose 307 GB/s "
    "STREAM triad reaches 80%"};
constexpr Host kTwoSockets = {
    96, 2048, 490,
    "assumed: the two sockets of an HGX board's host, 96 cores and sixteen channels of DDR5-4800, "
    "of whose 614 GB/s STREAM triad reaches 80%"};
constexpr Host kGrace = {72, 480, 440,
                         "Grace with 480 GB of LPDDR5X: 486 GB/s in STREAM (Schieffer et al. 2024, "
                         "Harnessing Integrated "
                         "CPU-GPU System Memory), a tenth less assumed for passes that also write"};

struct Link {
  double to_device, to_host, both_ways, latency_us;
  const char* source;
};
constexpr Link kPcie4 = {
    25, 25.5, 46, 10,
    "pinned copies over PCIe 4.0 x16 reach about 80% of the 31.5 GB/s each way that the standard "
    "leaves after encoding; both ways at once a tenth less than the sum"};
constexpr Link kPcie5 = {
    55, 55, 98, 10,
    "pinned copies over PCIe 5.0 x16 reach about 87% of the 63 GB/s each way that the standard "
    "leaves after encoding; both ways at once a tenth less than the sum"};
constexpr Link kNvlinkC2c = {
    375, 297, 600, 5,
    "NVLink-C2C, 450 GB/s each way by NVIDIA's data sheet: 375 GB/s to the device and 297 back "
    "measured (Schieffer et al. 2024)"};

struct Card {
  const char* name;
  const char* description;
  double memory_gib;  // nominal
  double bandwidth;   // GB/s, nominal
  // TFLOP/s of 8192³ products: bf16 with f32 sums, and f32.
  double bf16, f32;
  const char* products_source;
  // Size at which a dimension halves the rate: small products leave multiprocessors idle.
  double half_size;
  Link link;
  Host host;
};

constexpr Card kCards[] = {
    {"rtx-3060-12gb", "NVIDIA GeForce RTX 3060 12 GB, PCIe 4.0 x16", 12, 360, 23, 11.5,
     "data sheet 25.6 TFLOP/s bf16 with f32 sums, 12.7 f32 (GA106, boost clock); 90% reached, as "
     "its larger sisters",
     24, kPcie4, kOlderDesktop},
    {"rtx-3080-10gb", "NVIDIA GeForce RTX 3080 10 GB, PCIe 4.0 x16", 10, 760, 53, 26.5,
     "NVIDIA Ampere GA102 white paper: 59.5 TFLOP/s bf16 with f32 sums, 29.8 f32; 89% reached", 32,
     kPcie4, kOlderDesktop},
    {"rtx-3090", "NVIDIA GeForce RTX 3090 24 GB, PCIe 4.0 x16", 24, 936, 63, 31.5,
     "NVIDIA Ampere GA102 white paper: 71 TFLOP/s bf16 with f32 sums, 35.6 f32; 89% reached", 32,
     kPcie4, kOlderDesktop},
    {"rtx-4090", "NVIDIA GeForce RTX 4090 24 GB, PCIe 4.0 x16", 24, 1008, 158, 70,
     "NVIDIA Ada white paper: 165.2 TFLOP/s bf16 with f32 sums, 82.6 f32; 96% reached, for the "
     "clock passes the specified boost; LLM.Q's 2,777 tokens/s of Qwen2.5-7B need 119 TFLOP/s",
     48, kPcie4, kDesktop},
    {"rtx-5090", "NVIDIA GeForce RTX 5090 32 GB, PCIe 5.0 x16", 32, 1792, 200, 89,
     "NVIDIA Blackwell GB202 white paper: 209.5 TFLOP/s bf16 with f32 sums, 104.8 f32; 95% "
     "reached, as the RTX 4090",
     64, kPcie5, kDesktop},
    {"a100-80gb", "NVIDIA A100 SXM 80 GB, PCIe 4.0 x16", 80, 2039, 265, 18.5,
     "data sheet 312 TFLOP/s bf16, 19.5 f32; 85% reached by large products", 64, kPcie4,
     kServerDdr4},
    {"h100-pcie", "NVIDIA H100 PCIe 80 GB, PCIe 5.0 x16", 80, 2000, 460, 42,
     "data sheet 756 TFLOP/s bf16, 51 f32; 61% reached, for 350 W do not sustain the boost clock",
     96, kPcie5, kServerDdr5},
    {"h100-sxm", "NVIDIA H100 SXM 80 GB, PCIe 5.0 x16", 80, 3350, 740, 56,
     "data sheet 989 TFLOP/s bf16, 67 f32; 75% reached at 700 W, a little below an H200; LLM.Q's "
     "13.8k tokens/s of Qwen2.5-7B need 593 TFLOP/s",
     96, kPcie5, kTwoSockets},
    {"h200", "NVIDIA H200 SXM 141 GB, PCIe 5.0 x16", 141, 4800, 780, 56,
     "measured on an H200: 770 to 800 TFLOP/s of an 8192³ bf16 product (data sheet 989)", 96,
     kPcie5, kTwoSockets},
    {"gh200", "NVIDIA GH200 with 96 GB of HBM3 and 480 GB of LPDDR5X, NVLink-C2C", 96, 4000, 740,
     56, "data sheet 990 TFLOP/s bf16, 67 f32; the same chip as the H100 SXM's at a like power", 96,
     kNvlinkC2c, kGrace},
};

// Share of the nominal bandwidth that streaming kernels reach: an H200 copies 4.3 of its 4.8 TB/s.
constexpr double kReachedBandwidth = 0.88;
// What the driver's context, library workspaces and the display take of a card.
constexpr double kContextGib = 0.75;

// rate(8192, 8192, 8192) = reached; each dimension d takes the share d / (d + half).
RateGrid Products(double reached, double half) {
  const std::vector<int64_t> axis = {16, 64, 256, 1024, 4096, 16384};
  const auto share = [half](int64_t size) {
    return static_cast<double>(size) / (static_cast<double>(size) + half);
  };
  const double peak = reached / std::pow(share(8192), 3);
  std::vector<double> values;
  for (int64_t tokens : axis) {
    for (int64_t in : axis) {
      for (int64_t out : axis) values.push_back(peak * share(tokens) * share(in) * share(out));
    }
  }
  return RateGrid({axis, axis, axis}, std::move(values));
}

// Share of the product rate that fused causal attention reaches. FlashAttention-2 (Dao 2023,
// figures 5 and 6: an A100, causal, head dimension 128) makes 0.45 of the data sheet's rate forward
// at 1k tokens, 0.6 at 4k, and a sixth less backward; half the head dimension costs a tenth.
RateGrid Attention(double reached, double factor) {
  return RateGrid({{128, 512, 1024, 4096, 16384}, {64, 128}},
                  {0.16 * reached * factor, 0.18 * reached * factor,  //
                   0.37 * reached * factor, 0.41 * reached * factor,  //
                   0.46 * reached * factor, 0.52 * reached * factor,  //
                   0.60 * reached * factor, 0.68 * reached * factor,  //
                   0.65 * reached * factor, 0.74 * reached * factor});
}

// A hyperbolic tangent for each score, by the units for special functions: 16 a clock and
// multiprocessor, which makes 256 f32 FLOP then (CUDA C++ Programming Guide, arithmetic
// instructions, of compute capability 8.6 and later; an A100 makes half the FLOP and as many
// tangents).
double SoftcapRate(const Card& card) { return card.f32 * kTera / 16; }

// The head's products at their rate, with a pass over the logits for every product of theirs:
// at width h a logit costs 6·h FLOP and about 10 bytes.
RateGrid Head(const RateGrid& products, double bandwidth, double flops_a_logit) {
  const std::vector<int64_t> tokens = {64, 256, 1024, 4096};
  const std::vector<int64_t> hidden = {256, 1024, 4096, 16384};
  std::vector<double> values;
  for (int64_t t : tokens) {
    for (int64_t h : hidden) {
      const double width = static_cast<double>(h);
      const double product =
          flops_a_logit * width / products.At({static_cast<double>(t), width, 16384});
      const double pass = 5.0 / 3.0 * flops_a_logit / bandwidth;
      values.push_back(flops_a_logit * width / (product + pass));
    }
  }
  return RateGrid({tokens, hidden}, std::move(values));
}

DeviceProfile MakeProfile(const Card& card, DType compute) {
  const bool bf16 = compute == DType::kBF16;
  const double reached = (bf16 ? card.bf16 : card.f32) * kTera;
  DeviceProfile profile;
  profile.name = card.name;
  profile.description = card.description;
  profile.memory_bytes =
      static_cast<int64_t>((card.memory_gib - kContextGib) * static_cast<double>(1 << 30));
  profile.products.fill(Products(reached, card.half_size));
  profile.attention_forward = Attention(reached, 1.0);
  profile.attention_backward = Attention(reached, 0.84);
  profile.softcap_rate = SoftcapRate(card);
  const double bandwidth = card.bandwidth * kGiga * kReachedBandwidth;
  profile.head = Head(profile.products[0], bandwidth, 6);
  profile.head_statistics = Head(profile.products[0], bandwidth, 2);
  profile.head_gradient = profile.head;
  profile.pass_bandwidth.fill(bandwidth);
  profile.op_overhead_seconds = 4e-6;
  profile.link = {card.link.to_device * kGiga, card.link.to_host * kGiga,
                  card.link.both_ways * kGiga, card.link.latency_us * 1e-6};
  profile.host.cores = card.host.cores;
  profile.host.memory_bytes = card.host.memory_gib << 30;
  profile.host.memory_bandwidth = card.host.bandwidth * kGiga;
  profile.host.pass_core_bandwidth.fill(8 * kGiga);
  profile.host.update = {.plain_core_seconds = 0.8e-9, .quantized_core_seconds = 2.5e-9};
  profile.sources = {
      {"matrix products", card.products_source},
      {"attention",
       "the share of the products' rate that FlashAttention-2 reaches on an A100 (Dao 2023); soft "
       "caps at the rate of special functions, a sixteenth of f32 FLOP/s"},
      {"device memory",
       absl::StrCat("data sheet ", card.memory_gib, " GB less ", kContextGib,
                    " GiB for the driver's context and library workspaces; ", card.bandwidth,
                    " GB/s, of which streaming kernels reach 88% (measured: 4.3 of an H200's 4.8 "
                    "TB/s)")},
      {"launch", "4 µs from one small kernel to the next, when the host is ahead"},
      {"link", card.link.source},
      {"host", card.host.source},
      {"optimizer",
       "bounded by the host's memory bandwidth; on one core 0.8 ns a parameter, 2.5 ns with 8-bit "
       "moments, as vectorized passes measure"}};
  return profile;
}

DeviceProfile MakeMiddlingProcessor() {
  DeviceProfile profile;
  profile.name = "cpu";
  profile.description = "a processor neither new nor old";
  profile.cpu = true;
  profile.products.fill(RateGrid(2e11));
  profile.attention_forward = profile.attention_backward = RateGrid(1e11);
  profile.softcap_rate = 1e9;
  profile.head = profile.head_statistics = profile.head_gradient = RateGrid(1.5e11);
  profile.pass_bandwidth.fill(1e10);
  profile.copy_bandwidth = 8e9;
  profile.link = {.to_device = 8e9, .to_host = 8e9, .both_ways = 1.6e10, .latency_seconds = 0};
  profile.host.cores = 2;
  profile.host.memory_bandwidth = 1.6e10;
  profile.host.pass_core_bandwidth.fill(8e9);
  profile.host.update = {.plain_core_seconds = 2e-9, .quantized_core_seconds = 4e-9};
  profile.sources = {
      {"all rates", "assumed, of a server's cores neither new nor old; not measured"}};
  return profile;
}

}  // namespace

absl::string_view NameOf(DevicePass pass) {
  switch (pass) {
    case DevicePass::kNormForward:
      return "norm_forward";
    case DevicePass::kNormBackward:
      return "norm_backward";
    case DevicePass::kRotary:
      return "rotary";
    case DevicePass::kActivationForward:
      return "activation_forward";
    case DevicePass::kActivationBackward:
      return "activation_backward";
    case DevicePass::kConvert:
      return "convert";
    case DevicePass::kAccumulate:
      return "accumulate";
  }
  return "unknown";
}

absl::string_view NameOf(HostPass pass) {
  switch (pass) {
    case HostPass::kGradientNorm:
      return "gradient_norm";
    case HostPass::kGather:
      return "gather";
    case HostPass::kScatter:
      return "scatter";
    case HostPass::kClear:
      return "clear";
  }
  return "unknown";
}

std::vector<std::string> DeviceProfileNames() {
  std::vector<std::string> names;
  for (const Card& card : kCards) names.push_back(card.name);
  return names;
}

absl::StatusOr<DeviceProfile> FindDeviceProfile(absl::string_view name, DType compute) {
  for (const Card& card : kCards) {
    if (name == card.name) return MakeProfile(card, compute);
  }
  return absl::InvalidArgumentError(absl::StrCat("no device profile is called ", name,
                                                 "; take one of cpu, ",
                                                 absl::StrJoin(DeviceProfileNames(), ", ")));
}

const DeviceProfile& MiddlingProcessor() {
  static const DeviceProfile& profile = *new DeviceProfile(MakeMiddlingProcessor());
  return profile;
}

}  // namespace millrace
