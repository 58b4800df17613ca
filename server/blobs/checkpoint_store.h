// The complete checkpoints of this node's jobs, as clients see and fetch them. Reads only: workers
// write checkpoints and remove old ones (engine/train/checkpoint.h), at any moment.
//
// A checkpoint that is removed while it is fetched: a file that is open is read to its end, the
// next file is NOT_FOUND with the steps that there are.
#ifndef MILLRACE_SERVER_BLOBS_CHECKPOINT_STORE_H_
#define MILLRACE_SERVER_BLOBS_CHECKPOINT_STORE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/base/paths.h"

namespace millrace {

struct StoredCheckpoint {
  int64_t step = 0;
  absl::Time create_time;
  std::optional<double> evaluation_loss;
  struct File {
    // Within the checkpoint.
    std::string path;
    int64_t size_bytes = 0;
    std::string sha256;
  };
  // Without the manifest, which names the others.
  std::vector<File> files;
  // Of `files`.
  int64_t size_bytes = 0;
};

// One file, open.
class CheckpointFileReader {
 public:
  CheckpointFileReader(CheckpointFileReader&& other) noexcept;
  CheckpointFileReader& operator=(CheckpointFileReader&& other) noexcept;
  ~CheckpointFileReader();

  // Replaces `data` by the next bytes, at most `max_bytes`; empty at the end.
  absl::Status Read(size_t max_bytes, std::string* data);

 private:
  friend class CheckpointStore;
  CheckpointFileReader(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  int fd_;
  std::string path_;
};

// Stateless; safe for use by several threads.
class CheckpointStore {
 public:
  explicit CheckpointStore(DataPaths paths) : paths_(std::move(paths)) {}

  // Newest first. None for an unknown job.
  std::vector<StoredCheckpoint> List(const std::string& job_id) const;

  // `step` is a number, `latest`, or `best` (lowest evaluation loss; the older one where equal).
  // NOT_FOUND CHECKPOINT_NOT_FOUND.
  absl::StatusOr<StoredCheckpoint> Get(const std::string& job_id, absl::string_view step) const;

  // The folder of a checkpoint that Get found, and of what it was exported as: files that its
  // manifest does not name, and that go with it.
  std::string Folder(const std::string& job_id, int64_t step) const;
  std::string ExportsFolder(const std::string& job_id, int64_t step) const;

  // The complete export `path` (exports/{name}) of a checkpoint, nothing when there is none.
  std::optional<StoredCheckpoint::File> FindExport(const std::string& job_id, int64_t step,
                                                   const std::string& path) const;
  // Makes an export complete: what describes it is written beside `file`, which is in place.
  absl::Status RecordExport(const std::string& job_id, int64_t step,
                            const StoredCheckpoint::File& file) const;

  // Of all jobs, those half written too.
  int64_t StoredBytes() const;

  // Opens a file of the manifest, or an export, at `offset`. NOT_FOUND CHECKPOINT_NOT_FOUND |
  // FILE_NOT_FOUND; OUT_OF_RANGE OFFSET_OUT_OF_RANGE when `offset` is negative or past the end.
  absl::StatusOr<CheckpointFileReader> OpenFile(const std::string& job_id, absl::string_view step,
                                                const std::string& path, int64_t offset) const;

 private:
  const DataPaths paths_;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_BLOBS_CHECKPOINT_STORE_H_
