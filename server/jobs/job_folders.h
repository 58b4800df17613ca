// The folders of jobs: on their way out, and left behind.
#ifndef MILLRACE_SERVER_JOBS_JOB_FOLDERS_H_
#define MILLRACE_SERVER_JOBS_JOB_FOLDERS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/paths.h"

namespace millrace {

// Moves a job's folder, at once and for good, where nothing looks for it. Where it is now; empty
// when the job had none.
absl::StatusOr<std::string> MoveJobToTrash(const DataPaths& paths, const std::string& job_id);

// Removes a folder with all it holds. An empty path is nothing to remove.
absl::Status RemoveFolder(const std::string& folder);

// Empties the trash. Run at start, for a daemon that died while it deleted.
absl::Status EmptyTrash(const DataPaths& paths);

}  // namespace millrace

#endif  // MILLRACE_SERVER_JOBS_JOB_FOLDERS_H_
