// The folders of jobs: on their way out, and left behind.
#ifndef MILLRACE_SERVER_JOBS_JOB_FOLDERS_H_
#define MILLRACE_SERVER_JOBS_JOB_FOLDERS_H_

#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/paths.h"

namespace millrace {

// Writes down, in a job's folder, that it is to go once the job is gone from the store; so that a
// daemon that dies in between leaves nothing that cannot be told from a folder worth keeping.
absl::Status MarkDeleted(const DataPaths& paths, const std::string& job_id);

// Moves a job's folder, at once and for good, where nothing looks for it. Where it is now; empty
// when the job had none.
absl::StatusOr<std::string> MoveJobToTrash(const DataPaths& paths, const std::string& job_id);

// Moves a folder that a new job finds under its id out of its way, without loss, to
// `unclaimed/` in the data folder: the store does not know what it holds. Where it is now; empty
// when there was none.
absl::StatusOr<std::string> SetAside(const DataPaths& paths, const std::string& job_id);

// Removes the tokens that a job's workers prepared; the next one would prepare them again. For a
// job without a worker.
absl::Status RemovePrepared(const DataPaths& paths, const std::string& job_id);

// Removes a folder with all it holds. An empty path is nothing to remove.
absl::Status RemoveFolder(const std::string& folder);

// Removes what a daemon that died while it deleted left behind: all in the trash, and the marked
// folders of jobs that are not among `job_ids`. Not while jobs are deleted.
absl::Status RemoveLeftovers(const DataPaths& paths, const std::set<std::string>& job_ids);

}  // namespace millrace

#endif  // MILLRACE_SERVER_JOBS_JOB_FOLDERS_H_
