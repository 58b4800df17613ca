#include "engine/schedule/calibration.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/base/aligned_buffer.h"
#include "engine/base/file.h"
#include "engine/schedule/host_rates.h"
#include "engine/schedule/op_rates.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using Json = nlohmann::json;

// Rises with every change of the ops' speed, of what is measured, or of how it is counted.
constexpr int kVersion = 2;
// What measuring takes at most.
constexpr size_t kMeasurementBytes = size_t{512} << 20;

// Model and revision, as the system tells them.
std::string Processor() {
  std::ifstream file("/proc/cpuinfo");
  std::string text;
  for (std::string line; std::getline(file, line) && !line.empty();) {
    for (absl::string_view key : {"model name", "cpu family", "model\t", "stepping"}) {
      if (!absl::StartsWith(line, key)) continue;
      const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(": ", 1));
      if (parts.size() == 2) absl::StrAppend(&text, text.empty() ? "" : ", ", parts[1]);
    }
  }
  return text.empty() ? "unknown" : text;
}

Json ToJson(const RateGrid& grid) { return {{"sizes", grid.axes()}, {"rates", grid.values()}}; }

RateGrid GridFrom(const Json& json) {
  RateGrid grid(json.at("sizes").get<std::vector<std::vector<int64_t>>>(),
                json.at("rates").get<std::vector<double>>());
  size_t points = 1;
  for (const std::vector<int64_t>& axis : grid.axes()) points *= axis.size();
  const bool positive =
      std::all_of(grid.values().begin(), grid.values().end(), [](double rate) { return rate > 0; });
  if (points == 0 || points != grid.values().size() || !positive) {
    throw std::out_of_range("rates that do not fit their sizes");
  }
  return grid;
}

double Positive(const Json& json, absl::string_view key) {
  const double value = json.at(std::string(key)).get<double>();
  if (!(value > 0)) throw std::out_of_range(absl::StrCat(key, " is not positive"));
  return value;
}

// The rates of a profile by name, for reading and writing alike.
struct NamedGrid {
  const char* name;
  RateGrid* grid;
};
std::vector<NamedGrid> GridsOf(DeviceProfile& profile) {
  return {{"product_forward", &profile.products[0]},
          {"product_input_gradient", &profile.products[1]},
          {"product_weight_gradient", &profile.products[2]},
          {"attention_forward", &profile.attention_forward},
          {"attention_backward", &profile.attention_backward},
          {"head", &profile.head},
          {"head_statistics", &profile.head_statistics},
          {"head_gradient", &profile.head_gradient}};
}
struct NamedNumber {
  std::string name;
  double* value;
};
std::vector<NamedNumber> NumbersOf(DeviceProfile& profile) {
  std::vector<NamedNumber> numbers = {
      {"softcap", &profile.softcap_rate},
      {"copy_bandwidth", &profile.copy_bandwidth},
      {"memory_bandwidth", &profile.host.memory_bandwidth},
      {"update_plain", &profile.host.update.plain_core_seconds},
      {"update_quantized", &profile.host.update.quantized_core_seconds}};
  for (int i = 0; i < kNumDevicePasses; ++i) {
    numbers.push_back(
        {std::string(NameOf(static_cast<DevicePass>(i))), &profile.pass_bandwidth[i]});
  }
  for (int i = 0; i < kNumHostPasses; ++i) {
    numbers.push_back({absl::StrCat("host_", NameOf(static_cast<HostPass>(i))),
                       &profile.host.pass_core_bandwidth[i]});
  }
  return numbers;
}

// A second or two, and up to half a gigabyte of memory.
DeviceProfile Measure(DType compute, ThreadPool& pool) {
  DeviceProfile profile;
  MeasureOpRates(compute, pool, profile);
  MeasureHostRates(compute, pool, profile);
  return profile;
}

// What does not depend on measurements.
DeviceProfile Named(DeviceProfile profile) {
  profile.name = "cpu";
  profile.description = Processor();
  profile.cpu = true;
  profile.sources = {{"all rates", "measured on this machine, each op at a few sizes"}};
  return WithLink(std::move(profile), 0, 0);
}

DeviceProfile Read(const Json& json, DType compute, int threads) {
  if (json.at("version") != kVersion || json.at("processor") != Processor() ||
      json.at("threads") != threads || json.at("compute") != std::string(NameOf(compute))) {
    throw std::out_of_range("measured with another version, processor or setting");
  }
  const Json& rates = json.at("profile");
  DeviceProfile profile;
  profile.host.cores = threads;
  for (const NamedGrid& named : GridsOf(profile)) *named.grid = GridFrom(rates.at(named.name));
  for (const NamedNumber& named : NumbersOf(profile)) *named.value = Positive(rates, named.name);
  return Named(std::move(profile));
}

}  // namespace

std::string CalibrationToJson(const DeviceProfile& profile, DType compute, int threads) {
  DeviceProfile copy = profile;
  Json rates;
  for (const NamedGrid& named : GridsOf(copy)) rates[named.name] = ToJson(*named.grid);
  for (const NamedNumber& named : NumbersOf(copy)) rates[named.name] = *named.value;
  return Json{{"version", kVersion},
              {"processor", Processor()},
              {"threads", threads},
              {"compute", std::string(NameOf(compute))},
              {"profile", rates}}
      .dump(1);
}

absl::StatusOr<DeviceProfile> CalibrationFromJson(absl::string_view text, DType compute,
                                                  int threads) {
  try {
    return Read(Json::parse(text.begin(), text.end()), compute, threads);
  } catch (const std::exception& error) {
    return absl::DataLossError(absl::StrCat("not a calibration of this processor: ", error.what()));
  }
}

Calibration CalibrateCpu(const std::string& path, DType compute, ThreadPool& pool) {
  Calibration calibration;
  // Not what is no file: it might have no end.
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) {
    if (absl::StatusOr<std::string> text = ReadFile(path); text.ok()) {
      absl::StatusOr<DeviceProfile> profile = CalibrationFromJson(*text, compute, pool.threads());
      if (profile.ok()) {
        calibration.profile = *std::move(profile);
        return calibration;
      }
    }
  }
  // Nothing that is measured can run out of memory on the way.
  const absl::Status room =
      AlignedBuffer::Allocate(kMeasurementBytes, "measuring the processor").status();
  if (!room.ok()) {
    calibration.profile = MiddlingProcessor();
    calibration.kept = room;
    return calibration;
  }
  calibration.measured = true;
  calibration.profile = Named(Measure(compute, pool));
  if (!path.empty()) {
    calibration.kept =
        WriteFileAtomically(path, CalibrationToJson(calibration.profile, compute, pool.threads()));
  }
  return calibration;
}

DeviceProfile WithLink(DeviceProfile profile, double bytes_per_second, double latency_seconds) {
  const double rate = bytes_per_second > 0 ? bytes_per_second : profile.copy_bandwidth;
  profile.link = {.to_device = rate,
                  .to_host = rate,
                  .both_ways = 2 * rate,
                  .latency_seconds = latency_seconds};
  return profile;
}

}  // namespace millrace
