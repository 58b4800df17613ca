#include "server/worker/exit_report.h"

#include <signal.h>
#include <string.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/file.h"
#include "server/worker/exit_codes.h"

namespace millrace {
namespace {

constexpr int64_t kTailBytes = 64 << 10;
constexpr size_t kMostMessageBytes = 500;
constexpr absl::string_view kErrorMark = "[error] ";
// What went well is no hint.
constexpr absl::string_view kInfoMark = "[info] ";

std::string ReadTail(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const int64_t size = file.tellg();
  file.seekg(std::max<int64_t>(0, size - kTailBytes));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

bool RanOutOfMemory(const WorkerProcess::ExitStatus& status, int64_t kills,
                    const std::string& error) {
  if (!status.signalled) return false;
  if (status.value == SIGKILL) return kills > 0;
  return absl::StrContains(error, "bad_alloc");
}

}  // namespace

int64_t OutOfMemoryKills() {
  std::ifstream counters("/proc/vmstat");
  std::string name;
  int64_t value = 0;
  while (counters >> name >> value) {
    if (name == "oom_kill") return value;
  }
  return 0;
}

std::string LastError(const std::string& log_path, bool any_line) {
  const std::string tail = ReadTail(log_path);
  std::string last;
  for (absl::string_view line : absl::StrSplit(tail, '\n', absl::SkipWhitespace())) {
    const size_t mark = line.find(kErrorMark);
    if (mark == absl::string_view::npos && (!any_line || absl::StrContains(line, kInfoMark))) {
      continue;
    }
    if (mark != absl::string_view::npos) line.remove_prefix(mark + kErrorMark.size());
    last = std::string(absl::StripAsciiWhitespace(line.substr(0, kMostMessageBytes)));
  }
  return last;
}

WorkerExit DescribeExit(const std::optional<WorkerProcess::ExitStatus>& status,
                        const std::string& log_path, int64_t kills,
                        const std::string& killed_by_us) {
  WorkerExit exit;
  if (!killed_by_us.empty()) {
    exit.description = killed_by_us;
    return exit;
  }
  // What a process that was struck down wrote last is a hint even where it is no error line.
  const bool aborted = status.has_value() && status->signalled && status->value != SIGKILL;
  const std::string error = LastError(log_path, aborted);
  if (!status.has_value()) {
    exit.description = "the worker is gone, and no longer this daemon's to ask why";
    if (kills > 0) {
      exit.reason = v1::REASON_OUT_OF_MEMORY;
      absl::StrAppend(&exit.description, "; the kernel killed a process for memory meanwhile");
    }
  } else if (RanOutOfMemory(*status, kills, error)) {
    exit.reason = v1::REASON_OUT_OF_MEMORY;
    exit.description =
        "the kernel killed the worker because memory ran out; lower memory.host_budget or the "
        "model's size, or free memory on this node";
  } else if (status->signalled) {
    exit.description =
        absl::StrCat("killed by signal ", status->value, " (", strsignal(status->value), ")");
  } else {
    exit.description = absl::StrCat("exit code ", status->value);
    if (const WorkerExitCodeRow* row = FindWorkerExitCode(status->value)) {
      absl::StrAppend(&exit.description, " (", row->meaning, ")");
      if (row->reason != v1::REASON_UNSPECIFIED) exit.reason = row->reason;
    }
  }
  if (!error.empty()) absl::StrAppend(&exit.description, ": ", error);
  return exit;
}

}  // namespace millrace
