// The tables of the job store; README.md says what they hold.
#ifndef MILLRACE_SERVER_JOBS_SCHEMA_H_
#define MILLRACE_SERVER_JOBS_SCHEMA_H_

#include "absl/status/status.h"
#include "server/jobs/sqlite.h"

namespace millrace {

// Goes up by one whenever the tables or their meaning change.
inline constexpr int kSchemaVersion = 2;

// Creates the tables in an empty database, brings those of an older version up to date, and checks
// the version.
// FAILED_PRECONDITION when a newer Millrace wrote it.
absl::Status PrepareSchema(Database* db);

}  // namespace millrace

#endif  // MILLRACE_SERVER_JOBS_SCHEMA_H_
