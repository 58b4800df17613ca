// The datasets of this node, on disk.
//
//   {folder}/{id}/manifest.json   what was declared, and whether it is READY (dataset.h)
//   {folder}/{id}/parts/{path}    a file that is being received (dataset_upload.h)
//   {folder}/{id}/files/{path}    a complete file
//
// A dataset is created beside its place and renamed, finalized by replacing its manifest, and
// deleted by renaming it away first; so it is there as a whole or not at all.
#ifndef MILLRACE_SERVER_BLOBS_DATASET_STORE_H_
#define MILLRACE_SERVER_BLOBS_DATASET_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/blobs/dataset.h"
#include "server/blobs/dataset_upload.h"
#include "server/blobs/disk.h"

namespace millrace {

// Safe for use by several threads.
class DatasetStore {
 public:
  struct Options {
    // Made when it is not there.
    std::string folder;
    Disk* disk = Disk::System();
    // Names of the jobs, not ended, that need dataset `id`; asked before it is deleted.
    std::function<std::vector<std::string>(const std::string& id)> jobs_using;
  };

  // Reads what is there, and removes what a crash left half made or half deleted. A folder without
  // a manifest that can be read is left alone, and no dataset; the log names it.
  static absl::StatusOr<std::unique_ptr<DatasetStore>> Open(Options options);

  // Of each file path, size_bytes and sha256 are read. Gives back a dataset that is there already
  // with the same files. INVALID_ARGUMENT DATASET_INVALID; ALREADY_EXISTS ID_TAKEN, by a damaged
  // folder too;
  // RESOURCE_EXHAUSTED DISK_FULL when the bytes, and those that others still have to send, do not
  // fit.
  absl::StatusOr<Dataset> Create(const std::string& id, std::vector<DatasetFile> files);

  // NOT_FOUND DATASET_NOT_FOUND | DATASET_FILE_NOT_FOUND, and what DatasetUpload::Open says.
  absl::StatusOr<std::unique_ptr<DatasetUpload>> OpenUpload(const std::string& id,
                                                            const std::string& path,
                                                            int64_t offset);

  // Checks the content and makes the dataset READY; does nothing to one that is. INVALID_ARGUMENT
  // DATASET_INVALID: the content is refused and the dataset gone, so that another may have its id.
  // FAILED_PRECONDITION UPLOAD_INCOMPLETE; DATA_LOSS CHECKSUM_MISMATCH.
  absl::StatusOr<Dataset> Finalize(const std::string& id);

  // NOT_FOUND DATASET_NOT_FOUND.
  absl::StatusOr<Dataset> Get(const std::string& id) const;

  // At most `limit` datasets with ids after `after_id`, in order of id.
  std::vector<Dataset> List(const std::string& after_id, int limit) const;

  // FAILED_PRECONDITION IN_USE while a job needs it or it is being finalized.
  absl::Status Delete(const std::string& id);

  // Declared for datasets that are not READY, and not here yet.
  int64_t OutstandingBytes() const;

  // The folder that holds the files of a READY dataset.
  std::string FilesFolder(const std::string& id) const;

 private:
  struct Entry;

  explicit DatasetStore(Options options) : options_(std::move(options)) {}
  absl::Status Load();
  std::string FolderOf(const std::string& id) const;
  std::shared_ptr<Entry> MakeEntry(Dataset dataset) const;
  absl::StatusOr<std::shared_ptr<Entry>> Find(const std::string& id) const;
  // Its content, or the refusal of it.
  absl::StatusOr<Dataset> FinalizeEntry(const std::string& id, Entry& entry);
  // Ends uploads under way and removes the dataset with all its files.
  absl::Status Remove(const std::string& id, const std::shared_ptr<Entry>& entry);
  static Dataset Snapshot(const Entry& entry);

  const Options options_;
  // Held while a folder of a dataset appears or goes; nobody waits under it for those who read or
  // write files. Taken before `mutex_`, which is never held while the disk is waited for.
  absl::Mutex folders_;
  mutable absl::Mutex mutex_;
  std::map<std::string, std::shared_ptr<Entry>> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_BLOBS_DATASET_STORE_H_
