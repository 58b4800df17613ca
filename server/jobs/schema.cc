#include "server/jobs/schema.h"

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace millrace {
namespace {

constexpr char kTables[] = R"sql(
CREATE TABLE jobs (
  ordinal INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  request_id TEXT UNIQUE,
  submitted_spec BLOB NOT NULL,
  state INTEGER NOT NULL,
  queue_order INTEGER NOT NULL,
  needs TEXT NOT NULL,
  highest_step INTEGER NOT NULL,
  record BLOB NOT NULL
);
CREATE INDEX jobs_by_state ON jobs (state, queue_order);
CREATE INDEX jobs_by_queue_order ON jobs (queue_order);
CREATE TABLE attempts (
  job INTEGER NOT NULL REFERENCES jobs (ordinal) ON DELETE CASCADE,
  attempt INTEGER NOT NULL,
  start_micros INTEGER NOT NULL,
  end_micros INTEGER NOT NULL DEFAULT 0,
  last_report INTEGER NOT NULL DEFAULT 0,
  stop_trigger TEXT NOT NULL DEFAULT '',
  ended BLOB NOT NULL DEFAULT x'',
  exit TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (job, attempt)
) WITHOUT ROWID;
CREATE TABLE events (
  job INTEGER NOT NULL REFERENCES jobs (ordinal) ON DELETE CASCADE,
  sequence INTEGER NOT NULL,
  event BLOB NOT NULL,
  PRIMARY KEY (job, sequence)
) WITHOUT ROWID;
)sql";

// From version 1, whose jobs needed a dataset only.
constexpr char kUpgrade[] = "ALTER TABLE jobs RENAME COLUMN dataset TO needs;";

}  // namespace

absl::Status PrepareSchema(Database* db) {
  MILLRACE_ASSIGN_OR_RETURN(const int64_t version, db->Integer("PRAGMA user_version", 0));
  if (version == kSchemaVersion) return absl::OkStatus();
  if (version != 0 && version != 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job store: the database has schema version ", version, ", this Millrace reads version ",
        kSchemaVersion, "; start the version that wrote it, or give another data_dir"));
  }
  return db->Execute(absl::StrCat("BEGIN;", version == 0 ? kTables : kUpgrade,
                                  "PRAGMA user_version = ", kSchemaVersion, "; COMMIT;"));
}

}  // namespace millrace
