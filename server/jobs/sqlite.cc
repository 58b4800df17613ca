#include "server/jobs/sqlite.h"

#include <sqlite3.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/base/errors.h"

namespace millrace {
namespace {

absl::Status ErrorOf(sqlite3* db, absl::string_view action) {
  const int code = sqlite3_errcode(db);
  if (code == SQLITE_FULL) {
    return MakeError(ErrorReason::kDiskFull,
                     absl::StrCat("job store: no space left for ", sqlite3_db_filename(db, "main"),
                                  "; free some on its disk"));
  }
  if (code == SQLITE_NOTADB || code == SQLITE_CORRUPT) {
    return MakeError(
        ErrorReason::kInternal,
        absl::StrCat("job store: ", sqlite3_db_filename(db, "main"), " is damaged (",
                     sqlite3_errmsg(db), "); put a backup in its place, or use another data_dir"));
  }
  const std::string message = absl::StrCat("job store: cannot ", action, ": ", sqlite3_errmsg(db));
  return MakeError(ErrorReason::kInternal, message);
}

}  // namespace

Rows::Rows(Rows&& other) noexcept
    : db_(other.db_), statement_(std::exchange(other.statement_, nullptr)) {}

Rows::~Rows() {
  if (statement_ == nullptr) return;
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

absl::StatusOr<bool> Rows::Next() {
  switch (sqlite3_step(statement_)) {
    case SQLITE_ROW:
      return true;
    case SQLITE_DONE:
      return false;
    default:
      return ErrorOf(db_, absl::StrCat("run '", sqlite3_sql(statement_), "'"));
  }
}

int64_t Rows::Integer(int column) const { return sqlite3_column_int64(statement_, column); }

std::string Rows::Text(int column) const {
  const void* bytes = sqlite3_column_blob(statement_, column);
  if (bytes == nullptr) return "";
  return std::string(static_cast<const char*>(bytes),
                     static_cast<size_t>(sqlite3_column_bytes(statement_, column)));
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& path) {
  sqlite3* handle = nullptr;
  const int code =
      sqlite3_open_v2(path.c_str(), &handle,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  std::unique_ptr<Database> database(new Database(handle));
  if (code != SQLITE_OK) return ErrorOf(handle, absl::StrCat("open ", path));
  sqlite3_extended_result_codes(handle, 0);
  sqlite3_busy_timeout(handle, 5000);
  MILLRACE_RETURN_IF_ERROR(
      database->Execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; "
                        "PRAGMA foreign_keys = ON;"));
  return database;
}

Database::~Database() {
  for (auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  sqlite3_close(db_);
}

absl::Status Database::Execute(const std::string& sql) {
  if (sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
    return ErrorOf(db_, absl::StrCat("run '", sql, "'"));
  }
  return absl::OkStatus();
}

absl::StatusOr<sqlite3_stmt*> Database::Prepare(const std::string& sql) {
  if (auto found = statements_.find(sql); found != statements_.end()) return found->second;
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v3(db_, sql.c_str(), static_cast<int>(sql.size()), SQLITE_PREPARE_PERSISTENT,
                         &statement, nullptr) != SQLITE_OK) {
    return ErrorOf(db_, absl::StrCat("prepare '", sql, "'"));
  }
  statements_[sql] = statement;
  return statement;
}

absl::Status Database::Bound(int code, sqlite3_stmt* statement, int index) {
  if (code == SQLITE_OK) return absl::OkStatus();
  return ErrorOf(db_, absl::StrCat("bind parameter ", index, " of '", sqlite3_sql(statement), "'"));
}

absl::Status Database::Bind(sqlite3_stmt* statement, int index, int64_t value) {
  return Bound(sqlite3_bind_int64(statement, index, value), statement, index);
}

absl::Status Database::Bind(sqlite3_stmt* statement, int index, absl::string_view text) {
  return Bound(sqlite3_bind_text64(statement, index, text.data(), text.size(), SQLITE_TRANSIENT,
                                   SQLITE_UTF8),
               statement, index);
}

absl::Status Database::Bind(sqlite3_stmt* statement, int index, const std::string& text) {
  return Bind(statement, index, absl::string_view(text));
}

absl::Status Database::Bind(sqlite3_stmt* statement, int index, Blob blob) {
  return Bound(
      sqlite3_bind_blob64(statement, index, blob.bytes.data(), blob.bytes.size(), SQLITE_TRANSIENT),
      statement, index);
}

absl::Status Database::Bind(sqlite3_stmt* statement, int index, std::nullptr_t) {
  return Bound(sqlite3_bind_null(statement, index), statement, index);
}

int64_t Database::last_insert_id() const { return sqlite3_last_insert_rowid(db_); }

}  // namespace millrace
