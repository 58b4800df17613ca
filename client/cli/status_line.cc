#include "client/cli/status_line.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace millrace {

void StatusLine::Show(const std::vector<std::string>& segments) {
  if (!terminal_.interactive) return;
  absl::Time now = absl::Now();
  if (shown_ && now - last_drawn_ < absl::Milliseconds(100)) return;
  // The last column stays free: some terminals wrap as soon as it is written.
  size_t room =
      static_cast<size_t>(std::max(1, TerminalColumns(STDOUT_FILENO, terminal_.columns) - 1));
  std::string line;
  for (const std::string& segment : segments) {
    if (segment.empty()) continue;
    size_t needed = DisplayColumns(segment) + (line.empty() ? 0 : 2);
    if (DisplayColumns(line) + needed <= room) {
      absl::StrAppend(&line, line.empty() ? "" : "  ", segment);
    } else {
      if (line.empty()) line = Ellipsize(segment, room);
      break;
    }
  }
  out_ << "\r\x1b[K" << line << std::flush;
  shown_ = true;
  last_drawn_ = now;
}

void StatusLine::Clear() {
  if (!shown_) return;
  out_ << "\r\x1b[K" << std::flush;
  shown_ = false;
}

std::string ProgressBar(double ratio, int columns, bool unicode) {
  int inner = std::max(1, columns - 2);
  int full = static_cast<int>(std::floor(std::clamp(ratio, 0.0, 1.0) * inner));
  std::string bar = "[";
  for (int i = 0; i < inner; ++i) {
    bar += i < full ? (unicode ? "█" : "#") : (unicode ? "░" : "-");
  }
  return bar + "]";
}

}  // namespace millrace
