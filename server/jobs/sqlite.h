// SQLite with statuses and typed binding.
//
//   MILLRACE_ASSIGN_OR_RETURN(auto db, Database::Open(path));
//   MILLRACE_RETURN_IF_ERROR(db->Run("DELETE FROM events WHERE job = ?", ordinal));
//   MILLRACE_ASSIGN_OR_RETURN(Rows rows, db->Query("SELECT id FROM jobs WHERE state = ?", 3));
//   while (true) {
//     MILLRACE_ASSIGN_OR_RETURN(bool more, rows.Next());
//     if (!more) break;
//     … rows.Text(0) …
//   }
//
// Errors: a full disk is RESOURCE_EXHAUSTED DISK_FULL, all others INTERNAL with SQLite's words. A
// Database and its Rows are used by one thread at a time.
#ifndef MILLRACE_SERVER_JOBS_SQLITE_H_
#define MILLRACE_SERVER_JOBS_SQLITE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct sqlite3;
struct sqlite3_stmt;

namespace millrace {

// Bytes that are stored as BLOB, where text is stored as TEXT.
struct Blob {
  absl::string_view bytes;
};

// A running query. Ends when destroyed.
class Rows {
 public:
  Rows(sqlite3* db, sqlite3_stmt* statement) : db_(db), statement_(statement) {}
  Rows(Rows&& other) noexcept;
  Rows& operator=(Rows&&) = delete;
  ~Rows();

  // Steps to the next row; false after the last.
  absl::StatusOr<bool> Next();

  // Columns of the current row, from 0. NULL reads as 0 or empty.
  int64_t Integer(int column) const;
  std::string Text(int column) const;

 private:
  sqlite3* db_;
  sqlite3_stmt* statement_;
};

class Database {
 public:
  // Opens or creates, in WAL mode with full sync.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // One or more statements without parameters.
  absl::Status Execute(const std::string& sql);

  // One statement; parameters are int64_t-like, text (std::string, string_view), Blob, or nullptr.
  // Statements are kept prepared by their text. A query must have ended before the same text is
  // used again.
  template <typename... Args>
  absl::StatusOr<Rows> Query(const std::string& sql, const Args&... args) {
    absl::StatusOr<sqlite3_stmt*> statement = Prepare(sql);
    if (!statement.ok()) return statement.status();
    // Also takes back what was bound before an error.
    Rows rows(db_, *statement);
    absl::Status bound;
    int index = 0;
    (void)(... && (bound = Bind(*statement, ++index, args)).ok());
    if (!bound.ok()) return bound;
    return rows;
  }

  template <typename... Args>
  absl::Status Run(const std::string& sql, const Args&... args) {
    absl::StatusOr<Rows> rows = Query(sql, args...);
    if (!rows.ok()) return rows.status();
    return rows->Next().status();
  }

  // The first column of the first row; `otherwise` when there is no row.
  template <typename... Args>
  absl::StatusOr<int64_t> Integer(const std::string& sql, int64_t otherwise, const Args&... args) {
    absl::StatusOr<Rows> rows = Query(sql, args...);
    if (!rows.ok()) return rows.status();
    absl::StatusOr<bool> found = rows->Next();
    if (!found.ok()) return found.status();
    return *found ? rows->Integer(0) : otherwise;
  }

  int64_t last_insert_id() const;

 private:
  explicit Database(sqlite3* db) : db_(db) {}
  absl::StatusOr<sqlite3_stmt*> Prepare(const std::string& sql);
  absl::Status Bind(sqlite3_stmt* statement, int index, int64_t value);
  absl::Status Bind(sqlite3_stmt* statement, int index, absl::string_view text);
  absl::Status Bind(sqlite3_stmt* statement, int index, const std::string& text);
  absl::Status Bind(sqlite3_stmt* statement, int index, Blob blob);
  absl::Status Bind(sqlite3_stmt* statement, int index, std::nullptr_t);
  absl::Status Bound(int code, sqlite3_stmt* statement, int index);

  sqlite3* db_;
  std::unordered_map<std::string, sqlite3_stmt*> statements_;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_JOBS_SQLITE_H_
