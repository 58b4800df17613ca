// Writes checkpoints in other formats, each in a process of its own, beside their files.
#ifndef MILLRACE_SERVER_WORKER_CHECKPOINT_EXPORTER_H_
#define MILLRACE_SERVER_WORKER_CHECKPOINT_EXPORTER_H_

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/blobs/checkpoint_store.h"

namespace millrace {

// Safe for use by several threads.
class CheckpointExporter {
 public:
  struct Options {
    std::string worker_program;
    // Outlives the exporter.
    const CheckpointStore* checkpoints = nullptr;
  };

  struct Request {
    std::string job_id;
    // A number, `latest` or `best`.
    std::string step;
    std::string format;       // `gguf`
    std::string weight_type;  // empty is BF16
    std::function<void(int64_t done_bytes, int64_t total_bytes)> on_progress;
    std::function<bool()> cancelled;
  };

  explicit CheckpointExporter(Options options) : options_(std::move(options)) {}

  // The export, made unless it is there already; it is there as a whole or not at all, as long as
  // its checkpoint. INVALID_ARGUMENT CONFIG_INVALID; NOT_FOUND CHECKPOINT_NOT_FOUND;
  // FAILED_PRECONDITION EXPORT_UNSUPPORTED; RESOURCE_EXHAUSTED DISK_FULL; UNAVAILABLE BUSY while
  // the same is being made.
  absl::StatusOr<StoredCheckpoint::File> Export(const Request& request);

 private:
  absl::StatusOr<StoredCheckpoint::File> Make(const Request& request,
                                              const StoredCheckpoint& checkpoint,
                                              const std::string& path);

  const Options options_;
  absl::Mutex mutex_;
  // Being made: full paths.
  std::set<std::string> making_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_WORKER_CHECKPOINT_EXPORTER_H_
