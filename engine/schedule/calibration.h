// The profile of this machine's own processor, measured once and kept on disk.
//
//   Calibration calibration = CalibrateCpu(folder + "/cpu-profile.json", DType::kBF16, pool);
//   if (!calibration.kept.ok()) Warn(calibration.kept);
//   DeviceProfile discrete = WithLink(calibration.profile, 16e9, 10e-6);
//
// The file is JSON: `version`, `processor`, `threads` and `compute`, for which alone it holds, and
// `profile` with the fields of DeviceProfile in bytes, seconds and FLOP/s.
#ifndef MILLRACE_ENGINE_SCHEDULE_CALIBRATION_H_
#define MILLRACE_ENGINE_SCHEDULE_CALIBRATION_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/dtype.h"
#include "engine/base/thread_pool.h"
#include "engine/schedule/profile.h"

namespace millrace {

struct Calibration {
  DeviceProfile profile;
  bool measured = false;  // just now; else it was read
  // Whether what was measured could be written; where memory is too short to measure, that error,
  // and the profile is MiddlingProcessor's.
  absl::Status kept;
};

// Reads `path`; where there is nothing, or what is there is damaged or from another version,
// processor, number of threads or compute type, measures (a second or two, with all threads of
// `pool`) and writes. An empty path: measures, keeps nothing. Memory figures are the caller's to
// fill in.
Calibration CalibrateCpu(const std::string& path, DType compute, ThreadPool& pool);

// The content of such a file. DATA_LOSS when `text` is not one for this processor, these threads
// and `compute`.
std::string CalibrationToJson(const DeviceProfile& profile, DType compute, int threads);
absl::StatusOr<DeviceProfile> CalibrationFromJson(absl::string_view text, DType compute,
                                                  int threads);

// The processor as a discrete device: copies of at most `bytes_per_second` each way (0: as fast as
// a thread copies) that arrive `latency_seconds` later.
DeviceProfile WithLink(DeviceProfile profile, double bytes_per_second, double latency_seconds);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_CALIBRATION_H_
