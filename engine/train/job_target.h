// Where a job is to run, as the planner needs to know it.
#ifndef MILLRACE_ENGINE_TRAIN_JOB_TARGET_H_
#define MILLRACE_ENGINE_TRAIN_JOB_TARGET_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/dtype.h"
#include "engine/schedule/profile.h"
#include "engine/train/train_spec.h"

namespace millrace {

struct PlanTarget {
  // A device profile (engine/schedule/profile.h); empty: this machine and the job's own device.
  std::string device;
  // Memory that the job may take; 0: what the machine or the profile has.
  int64_t host_memory_bytes = 0;
  // Where this machine's rates are kept (engine/schedule/calibration.h). When they are not there
  // they are measured, with `measure`, or else those of MiddlingProcessor do.
  std::string calibration_file;
  bool measure = false;
  // Also make JobPlan::trace_json.
  bool trace = false;
};

struct JobTarget {
  DeviceProfile profile;
  bool unified = false;
  DType compute = DType::kBF16;
  int threads = 1;
  // What the job may take; on a processor the device's comes out of the host's.
  int64_t device_bytes = 0, host_bytes = 0;
  // The same, whatever the job's own budgets.
  int64_t most_device_bytes = 0, most_host_bytes = 0;

  bool own() const { return profile.cpu; }
};

// `spec` is resolved. INVALID_ARGUMENT, beginning with the field, for a device that is not known
// and for a budget that is more than it has.
absl::StatusOr<JobTarget> ResolveTarget(const TrainSpec& spec, const PlanTarget& target);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_TRAIN_JOB_TARGET_H_
