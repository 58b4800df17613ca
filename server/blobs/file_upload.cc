#include "server/blobs/file_upload.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/base/errors.h"

namespace millrace {
namespace {

// A long upload is synced this often, so that its end does not wait for all of it.
constexpr int64_t kSyncEveryBytes = int64_t{64} << 20;
constexpr size_t kReadChunk = size_t{1} << 20;

int64_t SizeOf(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 ? static_cast<int64_t>(status.st_size) : -1;
}

absl::Status MakeParent(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  std::error_code error;
  std::filesystem::create_directories(parent, error);
  if (error) return ErrnoToStatus(error.value(), "create", parent.string());
  return absl::OkStatus();
}

absl::Status CheckNotDeleted(const FileSlot& slot) {
  if (!slot.deleted) return absl::OkStatus();
  return MakeError(slot.kind->not_found, absl::StrCat("file ", slot.declared.path, ": its ",
                                                      slot.kind->noun, " was deleted meanwhile"));
}

// Feeds the first `size` bytes of the part to `hash`.
absl::Status HashBeginning(const FileSlot& slot, int64_t size, Sha256& hash) {
  const std::string& path = slot.part_path;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoToStatus(errno, "open", path);
  std::vector<char> chunk(kReadChunk);
  while (size > 0 && !slot.deleted) {
    const ssize_t count = read(fd, chunk.data(), std::min<int64_t>(size, kReadChunk));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const int error = count < 0 ? errno : EIO;
      close(fd);
      return ErrnoToStatus(error, "read", path);
    }
    hash.Update(absl::string_view(chunk.data(), static_cast<size_t>(count)));
    size -= count;
  }
  close(fd);
  return CheckNotDeleted(slot);
}

}  // namespace

int64_t CommittedBytes(const FileSlot& slot) {
  const int64_t complete = SizeOf(slot.final_path);
  return complete >= 0 ? complete : std::max<int64_t>(SizeOf(slot.part_path), 0);
}

bool IsComplete(const FileSlot& slot) { return SizeOf(slot.final_path) >= 0; }

absl::StatusOr<std::unique_ptr<FileUpload>> FileUpload::Open(std::shared_ptr<FileSlot> slot,
                                                             int64_t offset, Disk* disk) {
  absl::MutexLock lock(&slot->mutex);
  MILLRACE_RETURN_IF_ERROR(CheckNotDeleted(*slot));
  const int64_t committed = CommittedBytes(*slot);
  if (offset != committed) {
    return WithMetadata(
        MakeError(
            ErrorReason::kOffsetMismatch,
            absl::StrCat("file ", slot->declared.path, ": offset ", offset,
                         " is not where it is to be resumed; send bytes from ", committed, " on")),
        "committed_bytes", absl::StrCat(committed));
  }
  auto upload = std::unique_ptr<FileUpload>(new FileUpload(slot, ++slot->holder, disk));
  upload->committed_bytes_ = committed;
  if (IsComplete(*slot)) return upload;
  MILLRACE_RETURN_IF_ERROR(MakeParent(slot->part_path));
  upload->fd_ = open(slot->part_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (upload->fd_ < 0) return ErrnoToStatus(errno, "create", slot->part_path);
  MILLRACE_RETURN_IF_ERROR(HashBeginning(*slot, committed, upload->hash_));
  return upload;
}

FileUpload::~FileUpload() {
  if (fd_ >= 0) close(fd_);
}

absl::Status FileUpload::CheckHolder() const {
  MILLRACE_RETURN_IF_ERROR(CheckNotDeleted(*slot_));
  if (slot_->holder == holder_) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("file ", slot_->declared.path,
                                         ": another upload of it has begun; ask for its "
                                         "committed_bytes and resume there"));
}

absl::Status FileUpload::Append(absl::string_view bytes) {
  if (bytes.empty()) return absl::OkStatus();
  absl::MutexLock lock(&slot_->mutex);
  MILLRACE_RETURN_IF_ERROR(CheckHolder());
  const int64_t size = static_cast<int64_t>(bytes.size());
  if (fd_ < 0 || size > slot_->declared.size_bytes - committed_bytes_) {
    return MakeError(slot_->kind->invalid,
                     absl::StrCat("file ", slot_->declared.path, ": more than the declared ",
                                  slot_->declared.size_bytes,
                                  " bytes; it changed since it was declared, "
                                  "declare it again in another ",
                                  slot_->kind->noun));
  }
  absl::Status status = disk_->Append(fd_, bytes, slot_->part_path);
  if (!status.ok()) {
    if (!absl::IsResourceExhausted(status)) return status;
    return MakeError(ErrorReason::kDiskFull,
                     absl::StrCat(status.message(), "; free some space and resume the upload"));
  }
  hash_.Update(bytes);
  committed_bytes_ += size;
  unsynced_bytes_ += size;
  if (unsynced_bytes_ >= kSyncEveryBytes) {
    unsynced_bytes_ = 0;
    return disk_->Sync(fd_, slot_->part_path);
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> FileUpload::Finish() {
  absl::MutexLock lock(&slot_->mutex);
  MILLRACE_RETURN_IF_ERROR(CheckHolder());
  if (fd_ < 0) return committed_bytes_;
  MILLRACE_RETURN_IF_ERROR(disk_->Sync(fd_, slot_->part_path));
  if (committed_bytes_ < slot_->declared.size_bytes) return committed_bytes_;

  const std::string found = hash_.Finish();
  if (found != slot_->declared.sha256) {
    if (ftruncate(fd_, 0) != 0) return ErrnoToStatus(errno, "truncate", slot_->part_path);
    return MakeError(
        ErrorReason::kChecksumMismatch,
        absl::StrCat("file ", slot_->declared.path, ": the SHA-256 of what arrived is ", found,
                     ", declared was ", slot_->declared.sha256, "; send it again from offset 0"));
  }
  MILLRACE_RETURN_IF_ERROR(MakeParent(slot_->final_path));
  if (std::rename(slot_->part_path.c_str(), slot_->final_path.c_str()) != 0) {
    return ErrnoToStatus(errno, "move into place", slot_->part_path);
  }
  MILLRACE_RETURN_IF_ERROR(
      SyncFolder(std::filesystem::path(slot_->final_path).parent_path().string()));
  return committed_bytes_;
}

}  // namespace millrace
