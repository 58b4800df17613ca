#include "client/lib/local_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/lib/sha256.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

bool IsHidden(const fs::path& path) {
  std::string name = path.filename().string();
  return !name.empty() && name[0] == '.';
}

}  // namespace

absl::Status FileError(const std::string& what, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " ", path));
}

absl::Status CheckReplaceable(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status) || fs::is_regular_file(status)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, " is ", fs::is_directory(status) ? "a folder" : "not a regular file",
                   ", which nothing is written over; name a file"));
}

absl::StatusOr<LocalFile> LocalFile::OpenForReading(const std::string& path) {
  int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return FileError("read", path);
  return LocalFile(path, descriptor);
}

absl::StatusOr<LocalFile> LocalFile::OpenForWriting(const std::string& path) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0) return FileError("write", path);
  return LocalFile(path, descriptor);
}

LocalFile::LocalFile(LocalFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

LocalFile::~LocalFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::StatusOr<int64_t> LocalFile::Size() const {
  struct stat status;
  if (fstat(descriptor_, &status) != 0) return FileError("read", path_);
  return static_cast<int64_t>(status.st_size);
}

absl::Status LocalFile::Read(int64_t offset, size_t size, std::string* data) const {
  data->resize(size);
  size_t done = 0;
  while (done < size) {
    ssize_t n = pread(descriptor_, data->data() + done, size - done, offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError("read", path_);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  data->resize(done);
  return absl::OkStatus();
}

absl::Status LocalFile::Write(int64_t offset, absl::string_view data) {
  while (!data.empty()) {
    ssize_t n = pwrite(descriptor_, data.data(), data.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG) {
        return absl::ResourceExhaustedError(
            absl::StrCat("no space left for ", path_,
                         "; make room and run the same command again: it goes on from here"));
      }
      return FileError("write", path_);
    }
    offset += n;
    data.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status LocalFile::Truncate(int64_t size) {
  return ftruncate(descriptor_, size) == 0 ? absl::OkStatus() : FileError("write", path_);
}

absl::Status LocalFile::Sync() {
  return fsync(descriptor_) == 0 ? absl::OkStatus() : FileError("write", path_);
}

absl::StatusOr<std::vector<std::string>> ListFiles(const std::string& path) {
  std::error_code error;
  fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    return absl::NotFoundError(absl::StrCat("there is no file or folder ", path));
  }
  if (status.type() == fs::file_type::regular) {
    return std::vector<std::string>{fs::path(path).filename().string()};
  }
  if (status.type() != fs::file_type::directory) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is neither a file nor a folder", error ? ": " + error.message() : ""));
  }
  std::vector<std::string> files;
  fs::recursive_directory_iterator entry(path, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (IsHidden(entry->path())) {
      entry.disable_recursion_pending();
    } else if (std::error_code ignored; entry->is_regular_file(ignored)) {
      files.push_back(entry->path().lexically_relative(path).generic_string());
    }
  }
  if (error) {
    return absl::PermissionDeniedError(absl::StrCat("cannot list ", path, ": ", error.message()));
  }
  if (files.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the folder ", path, " has no files (hidden ones are not taken)"));
  }
  std::sort(files.begin(), files.end());
  return files;
}

absl::StatusOr<std::string> HashFile(const LocalFile& file, int64_t size,
                                     const std::function<bool(int64_t bytes)>& on_bytes) {
  Sha256 hash;
  std::string chunk;
  for (int64_t offset = 0; offset < size;) {
    size_t wanted = static_cast<size_t>(std::min<int64_t>(kChunkBytes, size - offset));
    absl::Status status = file.Read(offset, wanted, &chunk);
    if (!status.ok()) return status;
    if (chunk.empty()) return absl::AbortedError("a file became shorter while it was read");
    hash.Update(chunk);
    offset += static_cast<int64_t>(chunk.size());
    if (!on_bytes(static_cast<int64_t>(chunk.size()))) return absl::CancelledError("interrupted");
  }
  return hash.Finish();
}

}  // namespace millrace
