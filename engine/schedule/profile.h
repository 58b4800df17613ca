// How fast a device, its link and its host are.
//
//   MILLRACE_ASSIGN_OR_RETURN(DeviceProfile profile, FindDeviceProfile("rtx-3080-10gb", compute));
//   profile.host.memory_bytes = int64_t{64} << 30;
//
// All rates are what programs reach, not what data sheets promise; `sources` says where each comes
// from. The CPU's own profile is measured (calibration.h).
#ifndef MILLRACE_ENGINE_SCHEDULE_PROFILE_H_
#define MILLRACE_ENGINE_SCHEDULE_PROFILE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/dtype.h"
#include "engine/schedule/rate_grid.h"

namespace millrace {

// The three products of a linear layer: y = x·wᵀ, dx = dy·w, dw = dyᵀ·x.
enum class ProductKind : uint8_t { kForward, kInputGradient, kWeightGradient };
inline constexpr int kNumProductKinds = 3;

// Element-wise and row-wise passes on the device, which move bytes and little else.
enum class DevicePass : uint8_t {
  kNormForward,
  kNormBackward,
  kRotary,
  kActivationForward,
  kActivationBackward,
  kConvert,
  kAccumulate,  // adding a weight gradient to what is there instead of writing it
};
inline constexpr int kNumDevicePasses = 7;
absl::string_view NameOf(DevicePass pass);

// Passes of the host's own threads.
enum class HostPass : uint8_t { kGradientNorm, kGather, kScatter, kClear };
inline constexpr int kNumHostPasses = 4;
absl::string_view NameOf(HostPass pass);

struct LinkProfile {
  // Bytes a second of large copies of pinned memory; of both directions together when both are
  // busy.
  double to_device = 0, to_host = 0, both_ways = 0;
  double latency_seconds = 0;  // of one copy
};

// Time of an optimizer's pass over one parameter on one core, by what it has to do: Adam's formula
// alone, and with block-wise 8-bit moments taken apart and put together again.
struct UpdateProfile {
  double plain_core_seconds = 0, quantized_core_seconds = 0;
};

struct HostProfile {
  int cores = 1;
  int64_t memory_bytes = 0;
  double memory_bandwidth = 0;  // bytes/s, read and written, all cores
  // Bytes a second of one core, unless memory bounds it.
  std::array<double, kNumHostPasses> pass_core_bandwidth = {};
  UpdateProfile update;
};

struct DeviceProfile {
  // Where a figure of this profile comes from, one sentence.
  struct Source {
    std::string figure, sentence;
  };

  std::string name;         // "rtx-3080-10gb"
  std::string description;  // "NVIDIA GeForce RTX 3080 10 GB, PCIe 4.0 x16"
  // Device and host are the same cores and the same memory.
  bool cpu = false;
  int64_t memory_bytes = 0;  // that a job can have

  // FLOP/s of products over (tokens, in, out).
  std::array<RateGrid, kNumProductKinds> products;
  // FLOP/s of causal attention over (tokens of a document, head_dim), counted as
  // 4 · query_size · pairs forward and 8 · query_size · pairs backward.
  RateGrid attention_forward, attention_backward;
  // Scores or logits a second that a soft cap takes, in either direction, beyond what is done to
  // them without one.
  double softcap_rate = 0;
  // FLOP/s of the loss head's products and of all that is done to logits, over (tokens, hidden):
  // forward and backward in one, counted as 6 · tokens · hidden · vocabulary; the statistics of
  // softmax alone, 2 · …; gradients from statistics with logits made again, 6 · ….
  RateGrid head, head_statistics, head_gradient;
  std::array<double, kNumDevicePasses> pass_bandwidth = {};  // bytes/s, read and written
  double op_overhead_seconds = 0;                            // from one op to the next

  LinkProfile link;
  // CPU as a discrete device: bytes/s that one thread copies.
  double copy_bandwidth = 0;
  HostProfile host;
  std::vector<Source> sources;

  const RateGrid& product(ProductKind kind) const { return products[static_cast<size_t>(kind)]; }
};

// Names of the shipped profiles.
std::vector<std::string> DeviceProfileNames();

// A shipped profile, computing in `compute`. INVALID_ARGUMENT for a name that is not shipped; the
// message names it and lists those there are.
absl::StatusOr<DeviceProfile> FindDeviceProfile(absl::string_view name, DType compute);

// Rates of a server's cores with bf16 instructions, neither new nor old: good enough to tell plans
// apart where nobody has measured.
const DeviceProfile& MiddlingProcessor();

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_PROFILE_H_
