// The CPU as a device. A stream runs each piece of work at once on the calling thread (with the
// pool's help), so that order is program order.
#ifndef MILLRACE_ENGINE_DEVICE_CPU_CPU_DEVICE_H_
#define MILLRACE_ENGINE_DEVICE_CPU_CPU_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/device/device.h"

namespace millrace {

enum class CpuDeviceMode : uint8_t {
  kUnified,   // host memory is device memory: uploads bind, nothing is copied
  kDiscrete,  // a memory of its own, reached by copies alone, as on a GPU
};

// `budget_bytes` of memory are reserved (RESOURCE_EXHAUSTED when the system refuses) and taken page
// by page when first touched.
absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(
    size_t budget_bytes, CpuDeviceMode mode = CpuDeviceMode::kUnified);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DEVICE_CPU_CPU_DEVICE_H_
