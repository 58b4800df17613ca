#include "server/jobs/job_traces.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/base/file.h"
#include "server/base/errors.h"

namespace millrace {
namespace {

constexpr size_t kMaxReadBytes = 256 * 1024;
constexpr absl::string_view kBeginning = "steps-";
constexpr absl::string_view kEnding = ".json";

// First and last step of `steps-A-B.json`; false for another name.
bool ParseName(absl::string_view name, std::pair<int64_t, int64_t>* steps) {
  if (!absl::ConsumePrefix(&name, kBeginning) || !absl::ConsumeSuffix(&name, kEnding)) return false;
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '-');
  return parts.size() == 2 && absl::SimpleAtoi(parts[0], &steps->first) &&
         absl::SimpleAtoi(parts[1], &steps->second);
}

// Last step by first step.
std::map<int64_t, int64_t> ListTraces(const std::string& folder) {
  std::map<int64_t, int64_t> traces;
  std::error_code error;
  for (std::filesystem::directory_iterator file(folder, error), end; !error && file != end;
       file.increment(error)) {
    std::pair<int64_t, int64_t> steps;
    if (ParseName(file->path().filename().string(), &steps)) traces.insert(steps);
  }
  return traces;
}

absl::Status NotFound(const std::string& job_id, int64_t first_step,
                      const std::map<int64_t, int64_t>& traces) {
  if (traces.empty()) {
    return MakeError(ErrorReason::kTraceNotFound,
                     absl::StrCat("jobs/", job_id,
                                  " has no trace; one is written once the last of the job file's "
                                  "trace.steps is done"));
  }
  return MakeError(
      ErrorReason::kTraceNotFound,
      absl::StrCat("jobs/", job_id, " has no trace that begins with step ", first_step,
                   "; it has those of steps ",
                   absl::StrJoin(traces, ", ", [](std::string* out, const auto& steps) {
                     absl::StrAppend(out, steps.first, " to ", steps.second);
                   })));
}

}  // namespace

absl::StatusOr<TraceReader> TraceReader::Open(const DataPaths& paths, const std::string& job_id,
                                              int64_t first_step, int64_t offset) {
  if (first_step < 0) {
    return MakeFieldError(
        ErrorReason::kRequestInvalid,
        {{"first_step", absl::StrCat(first_step, " is negative; give 0 for the last trace")}});
  }
  const std::map<int64_t, int64_t> traces = ListTraces(paths.Traces(job_id));
  const auto found = first_step > 0   ? traces.find(first_step)
                     : traces.empty() ? traces.end()
                                      : std::prev(traces.end());
  if (found == traces.end()) return NotFound(job_id, first_step, traces);
  TraceReader reader;
  reader.first_step_ = found->first;
  reader.last_step_ = found->second;
  reader.path_ = absl::StrCat(paths.Traces(job_id), "/", kBeginning, found->first, "-",
                              found->second, kEnding);
  reader.fd_ = open(reader.path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (reader.fd_ < 0) return ErrnoToStatus(errno, "open", reader.path_);
  struct stat info;
  if (fstat(reader.fd_, &info) != 0) return ErrnoToStatus(errno, "read", reader.path_);
  reader.size_bytes_ = info.st_size;
  if (offset < 0 || offset > reader.size_bytes_) {
    return MakeError(ErrorReason::kOffsetOutOfRange,
                     absl::StrCat("offset: ", offset, " is not within the ", reader.size_bytes_,
                                  " bytes of the trace of jobs/", job_id, " that begins with step ",
                                  reader.first_step_));
  }
  reader.offset_ = offset;
  return reader;
}

TraceReader::TraceReader(TraceReader&& other) noexcept { *this = std::move(other); }

TraceReader& TraceReader::operator=(TraceReader&& other) noexcept {
  path_ = std::move(other.path_);
  first_step_ = other.first_step_;
  last_step_ = other.last_step_;
  size_bytes_ = other.size_bytes_;
  offset_ = other.offset_;
  std::swap(fd_, other.fd_);
  return *this;
}

TraceReader::~TraceReader() {
  if (fd_ >= 0) close(fd_);
}

absl::Status TraceReader::Read(std::string* data) {
  data->resize(kMaxReadBytes);
  ssize_t count;
  do {
    count = pread(fd_, data->data(), data->size(), offset_);
  } while (count < 0 && errno == EINTR);
  if (count < 0) return ErrnoToStatus(errno, "read", path_);
  data->resize(static_cast<size_t>(count));
  offset_ += count;
  return absl::OkStatus();
}

}  // namespace millrace
