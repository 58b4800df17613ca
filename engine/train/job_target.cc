#include "engine/train/job_target.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "engine/base/status_macros.h"
#include "engine/base/thread_pool.h"
#include "engine/schedule/calibration.h"
#include "engine/schedule/profile.h"
#include "engine/train/system_memory.h"

namespace millrace {
namespace {

// Measured or read once a process.
DeviceProfile OwnProfile(const PlanTarget& target, DType compute, int threads) {
  const std::string& file = target.calibration_file;
  std::error_code ignored;
  if (!target.measure && !std::filesystem::is_regular_file(file, ignored)) {
    return MiddlingProcessor();
  }
  static absl::Mutex mutex(absl::kConstInit);
  static auto& known = *new std::map<std::tuple<std::string, DType, int>, DeviceProfile>();
  absl::MutexLock lock(&mutex);
  const auto [entry, is_new] = known.try_emplace({file, compute, threads});
  if (is_new) {
    ThreadPool pool(threads);
    entry->second = CalibrateCpu(file, compute, pool).profile;
  }
  return entry->second;
}

int64_t UsableBytes(int64_t bytes) {
  return static_cast<int64_t>(kUsableShareOfMemory * static_cast<double>(bytes));
}

}  // namespace

absl::StatusOr<JobTarget> ResolveTarget(const TrainSpec& spec, const PlanTarget& target) {
  JobTarget resolved;
  resolved.threads = static_cast<int>(spec.threads.value_or(1));
  resolved.compute =
      spec.compute.value_or(spec.recipe == Recipe::kFp32 ? DType::kF32 : DType::kBF16);
  const std::string device = target.device.empty() ? spec.device : target.device;
  if (device == "cpu" || device == "cpu-discrete") {
    resolved.profile = OwnProfile(target, resolved.compute, resolved.threads);
    resolved.unified = device == "cpu";
    if (!resolved.unified) {
      resolved.profile = WithLink(std::move(resolved.profile), spec.link_gbps.value_or(0) * 1e9, 0);
      resolved.profile.name = device;
    }
    resolved.host_bytes =
        target.host_memory_bytes > 0 ? target.host_memory_bytes : UsableBytes(FreeMemoryBytes());
    resolved.device_bytes = resolved.host_bytes;
  } else {
    absl::StatusOr<DeviceProfile> profile = FindDeviceProfile(device, resolved.compute);
    if (!profile.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("device: ", profile.status().message()));
    }
    resolved.profile = *std::move(profile);
    resolved.device_bytes = resolved.profile.memory_bytes;
    resolved.host_bytes = target.host_memory_bytes > 0
                              ? target.host_memory_bytes
                              : UsableBytes(resolved.profile.host.memory_bytes);
  }
  resolved.most_device_bytes = resolved.device_bytes;
  resolved.most_host_bytes = resolved.host_bytes;
  if (spec.device_budget_bytes) {
    if (!resolved.own() && *spec.device_budget_bytes > resolved.device_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "memory.device_budget: ", *spec.device_budget_bytes, " bytes are more than the ",
          resolved.device_bytes, " that ", device, " can give; lower it or leave it out"));
    }
    resolved.device_bytes = std::min(resolved.device_bytes, *spec.device_budget_bytes);
  }
  if (spec.host_budget_bytes) {
    resolved.host_bytes = std::min(resolved.host_bytes, *spec.host_budget_bytes);
  }
  return resolved;
}

}  // namespace millrace
