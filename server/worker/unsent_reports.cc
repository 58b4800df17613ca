#include "server/worker/unsent_reports.h"

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/delimited_message_util.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"

namespace millrace {
namespace {

std::string PathIn(const std::string& attempt_folder) {
  return absl::StrCat(attempt_folder, "/unsent.pb");
}

}  // namespace

absl::Status WriteUnsentReports(const std::string& attempt_folder,
                                const std::vector<v1::WorkerReport>& reports) {
  std::ostringstream content;
  for (const v1::WorkerReport& report : reports) {
    google::protobuf::util::SerializeDelimitedToOstream(report, &content);
  }
  return WriteFileAtomically(PathIn(attempt_folder), content.str());
}

absl::StatusOr<std::vector<v1::WorkerReport>> ReadUnsentReports(const std::string& attempt_folder) {
  const std::string path = PathIn(attempt_folder);
  std::vector<v1::WorkerReport> reports;
  if (access(path.c_str(), F_OK) != 0) return reports;
  MILLRACE_ASSIGN_OR_RETURN(const std::string content, ReadFile(path));
  google::protobuf::io::ArrayInputStream stream(content.data(), static_cast<int>(content.size()));
  while (true) {
    v1::WorkerReport report;
    bool at_end = false;
    if (!google::protobuf::util::ParseDelimitedFromZeroCopyStream(&report, &stream, &at_end)) {
      if (at_end) return reports;
      return absl::DataLossError(absl::StrCat(path, " is damaged"));
    }
    reports.push_back(std::move(report));
  }
}

absl::Status RemoveUnsentReports(const std::string& attempt_folder) {
  const std::string path = PathIn(attempt_folder);
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return ErrnoToStatus(errno, "remove", path);
  return absl::OkStatus();
}

}  // namespace millrace
