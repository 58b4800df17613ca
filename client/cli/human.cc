#include "client/cli/human.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace millrace {

std::string HumanBytes(int64_t bytes) {
  static const char* const kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  // 1023.95 would be rounded to 1024.0.
  while (value >= 1023.95 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string HumanCount(double count) {
  if (!std::isfinite(count)) return "-";
  if (count < 1000) return absl::StrFormat("%.0f", count);
  if (count < 1e6) return absl::StrFormat("%.1fk", count / 1e3);
  if (count < 1e9) return absl::StrFormat("%.2fM", count / 1e6);
  return absl::StrFormat("%.2fG", count / 1e9);
}

std::string HumanParameters(int64_t count) {
  double value = static_cast<double>(count);
  if (value < 1e3) return absl::StrCat(count);
  for (const char* unit : {"k", "M", "B"}) {
    value /= 1000;
    // Three figures at most: 999.7 is a thousand of the next.
    if (value < 9.95) return absl::StrFormat("%.1f%s", value, unit);
    if (value < 999.5) return absl::StrFormat("%.0f%s", value, unit);
  }
  return absl::StrFormat("%.1fT", value / 1000);
}

std::string HumanDuration(absl::Duration duration) {
  if (duration == absl::InfiniteDuration()) return "-";
  duration = std::max(duration, absl::ZeroDuration());
  if (duration < absl::Seconds(9.95)) {
    return absl::StrFormat("%.1fs", absl::ToDoubleSeconds(duration));
  }
  int64_t seconds = std::llround(absl::ToDoubleSeconds(duration));
  if (seconds < 60) return absl::StrFormat("%ds", seconds);
  if (seconds < 3600) return absl::StrFormat("%dm%02ds", seconds / 60, seconds % 60);
  if (seconds < 86400) return absl::StrFormat("%dh%02dm", seconds / 3600, seconds % 3600 / 60);
  return absl::StrFormat("%dd%02dh", seconds / 86400, seconds % 86400 / 3600);
}

std::string HumanAge(const google::protobuf::Timestamp& time, absl::Time now) {
  if (time.seconds() == 0) return "-";
  absl::Duration age = absl::Floor(now - FromProto(time), absl::Seconds(1));
  if (age < absl::Seconds(10)) {
    return absl::StrCat(std::max<int64_t>(0, absl::ToInt64Seconds(age)), "s ago");
  }
  return absl::StrCat(HumanDuration(age), " ago");
}

std::string HumanTime(const google::protobuf::Timestamp& time) {
  if (time.seconds() == 0) return "-";
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", FromProto(time), absl::LocalTimeZone());
}

std::string HumanLoss(double loss) { return absl::StrFormat("%.4f", loss); }

std::string HumanPercent(double ratio) {
  // 100 % is said only of what is done.
  double percent = std::clamp(ratio, 0.0, 1.0) * 100;
  return absl::StrFormat("%d%%", static_cast<int>(std::floor(percent + 1e-9)));
}

std::string ResourceId(absl::string_view name) {
  size_t slash = name.rfind('/');
  return std::string(slash == absl::string_view::npos ? name : name.substr(slash + 1));
}

std::string ResourceName(absl::string_view collection, absl::string_view id) {
  std::string prefix = absl::StrCat(collection, "/");
  return absl::StartsWith(id, prefix) ? std::string(id) : absl::StrCat(prefix, id);
}

absl::Time FromProto(const google::protobuf::Timestamp& time) {
  return absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos());
}

absl::Duration FromProto(const google::protobuf::Duration& duration) {
  return absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
}

}  // namespace millrace
