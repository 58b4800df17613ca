// A collection of blobs of this node, on disk: what datasets, models and tokenizers have in common.
//
//   {folder}/{id}/manifest.json   what was declared, and whether it is READY (blob.h)
//   {folder}/{id}/parts/{path}    a file that is being received (file_upload.h)
//   {folder}/{id}/files/{path}    a complete file
//
// A blob is created beside its place and renamed, finalized by replacing its manifest, and
// deleted by renaming it away first; so it is there as a whole or not at all.
#ifndef MILLRACE_SERVER_BLOBS_BLOB_STORE_H_
#define MILLRACE_SERVER_BLOBS_BLOB_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/blobs/blob.h"
#include "server/blobs/disk.h"
#include "server/blobs/file_upload.h"

namespace millrace {

// Safe for use by several threads.
class BlobStore {
 public:
  // Facts about complete files in `folder`. INVALID_ARGUMENT refuses them, with a reason of its own
  // or else the kind's.
  using Inspect = std::function<absl::StatusOr<nlohmann::ordered_json>(const std::string& folder)>;

  struct Options {
    const BlobKind* kind = nullptr;
    // Made when it is not there.
    std::string folder;
    Disk* disk = Disk::System();
    Inspect inspect;
    // Names of the jobs, not ended, that need blob `id`; asked before it is deleted.
    std::function<std::vector<std::string>(const std::string& id)> jobs_using;
    // Bytes that other stores still wait for on the same disk.
    std::function<int64_t()> outstanding_elsewhere;
  };

  // Reads what is there, and removes what a crash left half made or half deleted. A folder without
  // a manifest that can be read is left alone, and no blob; the log names it.
  static absl::StatusOr<std::unique_ptr<BlobStore>> Open(Options options);

  // Of each file path, size_bytes and sha256 are read. Gives back a blob that is there already
  // with the same files. INVALID_ARGUMENT; ALREADY_EXISTS ID_TAKEN, by a damaged folder too;
  // RESOURCE_EXHAUSTED DISK_FULL when the bytes, and those that others still have to send, do not
  // fit.
  absl::StatusOr<StoredBlob> Create(const std::string& id, std::vector<BlobFile> files);

  // Makes a blob that is READY at once, of files that lie elsewhere, or in `folder`, whose content
  // becomes the blob's; all as said in `files` and `facts`. Gives back one that is there already
  // with the same files and facts. ALREADY_EXISTS ID_TAKEN.
  absl::StatusOr<StoredBlob> Add(const std::string& id, std::vector<BlobFile> files,
                                 nlohmann::ordered_json facts, const std::string& folder = "");

  // OK unless the id is none or is taken.
  absl::Status CheckFree(const std::string& id) const;

  // NOT_FOUND (the kind's reason | FILE_NOT_FOUND), and what FileUpload::Open says.
  absl::StatusOr<std::unique_ptr<FileUpload>> OpenUpload(const std::string& id,
                                                         const std::string& path, int64_t offset);

  // Checks the content and makes the blob READY; does nothing to one that is. INVALID_ARGUMENT:
  // the content is refused and the blob gone, so that another may have its id. FAILED_PRECONDITION
  // UPLOAD_INCOMPLETE; DATA_LOSS CHECKSUM_MISMATCH.
  absl::StatusOr<StoredBlob> Finalize(const std::string& id);

  // NOT_FOUND.
  absl::StatusOr<StoredBlob> Get(const std::string& id) const;

  // At most `limit` blobs with ids after `after_id`, in order of id.
  std::vector<StoredBlob> List(const std::string& after_id, int limit) const;

  // FAILED_PRECONDITION IN_USE while a job needs it or it is being finalized.
  absl::Status Delete(const std::string& id);

  // Declared for blobs that are not READY, and not here yet.
  int64_t OutstandingBytes() const;

  // The folder that holds the files of a READY blob.
  std::string FilesFolder(const std::string& id) const;

 private:
  struct Entry;

  explicit BlobStore(Options options) : options_(std::move(options)) {}
  absl::Status Invalid(std::string field, std::string description) const;
  absl::Status NotFound(const std::string& id) const;
  std::string NameOf(const std::string& id) const;
  absl::Status CheckDeclaration(const std::string& id, const std::vector<BlobFile>& files) const;
  absl::Status CheckSpace(const StoredBlob& blob) const;
  absl::Status Load();
  std::string FolderOf(const std::string& id) const;
  std::shared_ptr<Entry> MakeEntry(StoredBlob blob) const;
  // The blob of this id that is there already; ID_TAKEN when it is another than `wanted`, or
  // damaged.
  absl::StatusOr<std::optional<StoredBlob>> FindSame(const StoredBlob& wanted) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(folders_);
  // Makes its folder, with `content` as its files where that is given.
  absl::StatusOr<StoredBlob> Place(StoredBlob blob, const std::string& content)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(folders_);
  absl::StatusOr<std::shared_ptr<Entry>> Find(const std::string& id) const;
  // Its content, or the refusal of it.
  absl::StatusOr<StoredBlob> FinalizeEntry(const std::string& id, Entry& entry);
  // Ends uploads under way and removes the blob with all its files.
  absl::Status Remove(const std::string& id, const std::shared_ptr<Entry>& entry);
  static StoredBlob Snapshot(const Entry& entry);

  const Options options_;
  // Held while a folder of a blob appears or goes; nobody waits under it for those who read or
  // write files. Taken before `mutex_`, which is never held while the disk is waited for.
  mutable absl::Mutex folders_;
  mutable absl::Mutex mutex_;
  std::map<std::string, std::shared_ptr<Entry>> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_BLOBS_BLOB_STORE_H_
