// Files that are either whole or absent, and their hashes.
//
//   MILLRACE_RETURN_IF_ERROR(WriteFileAtomically(path, text));
//
// Errors name the path and what the system said. A full disk is RESOURCE_EXHAUSTED, so that
// callers can tell it from other failures.
#ifndef MILLRACE_ENGINE_BASE_FILE_H_
#define MILLRACE_ENGINE_BASE_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace millrace {

// Status of a failed system call: `action` on `path` failed with `error` (an errno value).
absl::Status ErrnoToStatus(int error, absl::string_view action, absl::string_view path);

absl::StatusOr<std::string> ReadFile(const std::string& path);

// Writes beside `path`, syncs, renames into place, syncs the folder.
absl::Status WriteFileAtomically(const std::string& path, absl::string_view content);

// Makes a rename or a removal inside `folder` last.
absl::Status SyncFolder(const std::string& folder);

// Makes `folder` with all above it that are missing, each made to last in the one that holds it. OK
// when it is there already.
absl::Status MakeFolderDurably(const std::string& folder);

// SHA-256 of what is fed to it.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void Update(absl::string_view bytes);
  // Lower-case hexadecimal. Ends the computation; call once.
  std::string Finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

// SHA-256 of a whole file.
absl::StatusOr<std::string> Sha256OfFile(const std::string& path);

// A new file written from beginning to end, hashed on the way.
class FileWriter {
 public:
  static absl::StatusOr<FileWriter> Create(const std::string& path);
  FileWriter(FileWriter&& other) noexcept;
  FileWriter& operator=(FileWriter&& other) noexcept;
  ~FileWriter();

  absl::Status Append(absl::string_view bytes);
  // Syncs and closes. Required: a writer that is dropped without it leaves an unsynced file.
  absl::Status Finish();

  int64_t size_bytes() const { return size_bytes_; }
  // After Finish().
  const std::string& sha256() const { return sha256_; }

 private:
  FileWriter() = default;

  std::string path_;
  int fd_ = -1;
  int64_t size_bytes_ = 0;
  Sha256 hash_;
  std::string sha256_;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_BASE_FILE_H_
