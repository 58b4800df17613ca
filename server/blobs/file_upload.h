// Receiving one file of a blob.
//
// Bytes are appended to parts/{path}, whose size on disk is what is committed, whatever crashed.
// When the last byte is there and the hash is right, the file moves to files/{path}; so what lies
// under files/ is complete and true.
#ifndef MILLRACE_SERVER_BLOBS_FILE_UPLOAD_H_
#define MILLRACE_SERVER_BLOBS_FILE_UPLOAD_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "engine/base/file.h"
#include "server/blobs/blob.h"
#include "server/blobs/disk.h"

namespace millrace {

// Where one declared file stands; shared by those who receive it.
struct FileSlot {
  const BlobKind* kind = nullptr;
  BlobFile declared;
  // Parts and final place.
  std::string part_path;
  std::string final_path;

  // Set before the blob's folder goes. Whoever holds `mutex` then soon leaves and puts
  // nothing there any more; whoever takes it later finds this set.
  std::atomic<bool> deleted = false;

  absl::Mutex mutex;
  // The newest upload of this file. A client that lost its connection comes back before the old
  // stream is known to be dead; the old one may then write no more.
  int64_t holder ABSL_GUARDED_BY(mutex) = 0;
};

// Bytes of the file that are on disk: the size of the complete file or of its part.
int64_t CommittedBytes(const FileSlot& slot);

// Whether the file is complete and its hash was right.
bool IsComplete(const FileSlot& slot);

// One stream of bytes into one file. Used by one thread; dropped without Finish(), what was
// written stays and the file is resumed there.
class FileUpload {
 public:
  // Takes the file over from any other upload of it. FAILED_PRECONDITION OFFSET_MISMATCH when
  // `offset` is not what is committed. Here and below NOT_FOUND with the kind's reason: deleted.
  static absl::StatusOr<std::unique_ptr<FileUpload>> Open(std::shared_ptr<FileSlot> slot,
                                                          int64_t offset, Disk* disk);
  ~FileUpload();
  FileUpload(const FileUpload&) = delete;
  FileUpload& operator=(const FileUpload&) = delete;

  // RESOURCE_EXHAUSTED DISK_FULL: what is written stays. INVALID_ARGUMENT with the
  // kind's reason: more bytes than were declared. ABORTED when another upload took the file over.
  absl::Status Append(absl::string_view bytes);

  // Makes what was received last. When the file is whole, checks its hash and moves it into place;
  // DATA_LOSS CHECKSUM_MISMATCH empties it. Returns the committed bytes. Call once.
  absl::StatusOr<int64_t> Finish();

 private:
  FileUpload(std::shared_ptr<FileSlot> slot, int64_t holder, Disk* disk)
      : slot_(std::move(slot)), holder_(holder), disk_(disk) {}
  absl::Status CheckHolder() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(slot_->mutex);

  const std::shared_ptr<FileSlot> slot_;
  const int64_t holder_;
  Disk* const disk_;
  int fd_ = -1;
  int64_t committed_bytes_ = 0;
  int64_t unsynced_bytes_ = 0;
  Sha256 hash_;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_BLOBS_FILE_UPLOAD_H_
