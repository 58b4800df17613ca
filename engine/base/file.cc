#include "engine/base/file.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace millrace {
namespace {

constexpr size_t kChunk = size_t{1} << 20;

absl::Status WriteAll(int fd, absl::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return ErrnoToStatus(errno, "write", path);
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ErrnoToStatus(int error, absl::string_view action, absl::string_view path) {
  const std::string message =
      absl::StrCat("cannot ", action, " ", path, ": ", std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EEXIST:
      return absl::AlreadyExistsError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoToStatus(errno, "open", path);
  std::string content;
  std::vector<char> chunk(kChunk);
  while (true) {
    const ssize_t count = read(fd, chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int error = errno;
      close(fd);
      return ErrnoToStatus(error, "read", path);
    }
    if (count == 0) break;
    content.append(chunk.data(), static_cast<size_t>(count));
  }
  close(fd);
  return content;
}

absl::Status SyncFolder(const std::string& folder) {
  const int fd = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoToStatus(errno, "open folder", folder);
  const int result = fsync(fd);
  const int error = errno;
  close(fd);
  return result == 0 ? absl::OkStatus() : ErrnoToStatus(error, "sync folder", folder);
}

absl::Status MakeFolderDurably(const std::string& folder) {
  namespace fs = std::filesystem;
  fs::path path = fs::path(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "a/b/"
  std::error_code error;
  if (path.empty() || fs::is_directory(path, error)) return absl::OkStatus();
  const std::string parent = path.parent_path().string();
  MILLRACE_RETURN_IF_ERROR(MakeFolderDurably(parent));
  // Another process may have made it meanwhile.
  fs::create_directory(path, error);
  if (error) return ErrnoToStatus(error.value(), "create folder", path.string());
  return SyncFolder(parent);
}

absl::Status WriteFileAtomically(const std::string& path, absl::string_view content) {
  const std::string temporary = absl::StrCat(path, ".tmp");
  absl::Status status;
  {
    absl::StatusOr<FileWriter> writer = FileWriter::Create(temporary);
    if (!writer.ok()) return writer.status();
    status = writer->Append(content);
    if (status.ok()) status = writer->Finish();
  }
  if (status.ok() && std::rename(temporary.c_str(), path.c_str()) != 0) {
    status = ErrnoToStatus(errno, "rename into place", path);
  }
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  return SyncFolder(std::filesystem::path(path).parent_path().string());
}

struct Sha256::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(evp); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr);
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::Update(absl::string_view bytes) {
  EVP_DigestUpdate(context_->evp, bytes.data(), bytes.size());
}

std::string Sha256::Finish() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(context_->evp, digest, &size);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<char*>(digest), size));
}

absl::StatusOr<std::string> Sha256OfFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoToStatus(errno, "open", path);
  Sha256 hash;
  std::vector<char> chunk(kChunk);
  while (true) {
    const ssize_t count = read(fd, chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int error = errno;
      close(fd);
      return ErrnoToStatus(error, "read", path);
    }
    if (count == 0) break;
    hash.Update(absl::string_view(chunk.data(), static_cast<size_t>(count)));
  }
  close(fd);
  return hash.Finish();
}

absl::StatusOr<FileWriter> FileWriter::Create(const std::string& path) {
  FileWriter writer;
  writer.path_ = path;
  writer.fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (writer.fd_ < 0) return ErrnoToStatus(errno, "create", path);
  return writer;
}

FileWriter::FileWriter(FileWriter&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_bytes_(other.size_bytes_),
      hash_(std::move(other.hash_)),
      sha256_(std::move(other.sha256_)) {}

FileWriter& FileWriter::operator=(FileWriter&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(hash_, other.hash_);
  std::swap(sha256_, other.sha256_);
  return *this;
}

FileWriter::~FileWriter() {
  if (fd_ >= 0) close(fd_);
}

absl::Status FileWriter::Append(absl::string_view bytes) {
  MILLRACE_RETURN_IF_ERROR(WriteAll(fd_, bytes, path_));
  hash_.Update(bytes);
  size_bytes_ += static_cast<int64_t>(bytes.size());
  return absl::OkStatus();
}

absl::Status FileWriter::Finish() {
  if (fsync(fd_) != 0) return ErrnoToStatus(errno, "sync", path_);
  if (close(std::exchange(fd_, -1)) != 0) return ErrnoToStatus(errno, "close", path_);
  sha256_ = hash_.Finish();
  return absl::OkStatus();
}

}  // namespace millrace
