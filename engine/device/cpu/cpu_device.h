// The CPU as a device, in two modes.
//
// Unified: host memory is device memory. A stream runs each piece of work at once on the calling
// thread (with the pool's help), so that order is program order.
//
// Discrete: a GPU in miniature. Memory of its own, reached by copies alone; a thread a stream;
// copies that take as long as a link of the given speed would, each direction a link of its own.
//
//   MILLRACE_ASSIGN_OR_RETURN(auto device, CreateCpuDevice({.budget_bytes = size_t{2} << 30,
//                                                           .mode = CpuDeviceMode::kDiscrete,
//                                                           .link_bytes_per_second = 16e9}));
#ifndef MILLRACE_ENGINE_DEVICE_CPU_CPU_DEVICE_H_
#define MILLRACE_ENGINE_DEVICE_CPU_CPU_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/device/cpu/link_clock.h"
#include "engine/device/device.h"

namespace millrace {

enum class CpuDeviceMode : uint8_t {
  kUnified,   // host memory is device memory: uploads bind, nothing is copied
  kDiscrete,  // a memory of its own, reached by copies alone, as on a GPU
};

struct CpuDeviceOptions {
  // The device's memory.
  size_t budget_bytes = 0;
  CpuDeviceMode mode = CpuDeviceMode::kUnified;
  // Discrete only. What the link carries each way; 0: as fast as memory is copied.
  double link_bytes_per_second = 0;
  // Discrete only. How long after its last byte has left a copy arrives.
  absl::Duration link_latency = absl::ZeroDuration();
  // That the link keeps time by; outlives the device.
  LinkClock* clock = &LinkClock::Real();
};

// The memory is reserved (RESOURCE_EXHAUSTED when the system refuses) and taken page by page when
// first touched. Streams and events go before their device.
absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(const CpuDeviceOptions& options);

// The same with an unthrottled link.
inline absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(
    size_t budget_bytes, CpuDeviceMode mode = CpuDeviceMode::kUnified) {
  return CreateCpuDevice(CpuDeviceOptions{.budget_bytes = budget_bytes, .mode = mode});
}

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DEVICE_CPU_CPU_DEVICE_H_
