// The CPU as a device, in unified mode: host memory is device memory, and a stream runs each piece
// of work at once on the calling thread (with the pool's help), so that order is program order.
#ifndef MILLRACE_ENGINE_DEVICE_CPU_CPU_DEVICE_H_
#define MILLRACE_ENGINE_DEVICE_CPU_CPU_DEVICE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "engine/device/device.h"

namespace millrace {

// `budget_bytes` of memory are reserved (RESOURCE_EXHAUSTED when the system refuses) and taken page
// by page when first touched.
absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(size_t budget_bytes);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DEVICE_CPU_CPU_DEVICE_H_
