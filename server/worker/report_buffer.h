// Reports of a worker that the daemon has not acknowledged yet.
//
// The training thread adds and never waits; the link to the daemon takes and acknowledges. While
// the daemon is away reports pile up; at `capacity` every second step report is let go, so that
// memory stays bounded and the curve stays whole; should steps not be enough, also every second one
// of each other kind, but for Prepared and Ended, and the newest of each. The daemon wants
// sequences without gaps: in place of what was let go it gets empty reports, which say nothing.
#ifndef MILLRACE_SERVER_WORKER_REPORT_BUFFER_H_
#define MILLRACE_SERVER_WORKER_REPORT_BUFFER_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "millrace/v1/worker.pb.h"

namespace millrace {

// Safe for use by several threads.
class ReportBuffer {
 public:
  // A report takes about 250 bytes.
  explicit ReportBuffer(size_t capacity = size_t{1} << 18) : capacity_(capacity) {}

  // Gives the report its sequence and time.
  void Add(v1::WorkerReport report);

  // Everything up to `sequence` is stored by the daemon.
  void Acknowledge(int64_t sequence);

  // Waits until there is a report after `sequence`, and copies the first such; skips what is
  // acknowledged. False when Interrupt() was called instead.
  bool WaitForNext(int64_t sequence, v1::WorkerReport* report);

  // Makes WaitForNext return false, now and until Resume().
  void Interrupt();
  void Resume();

  // False when `timeout` passed first.
  bool WaitUntilAllAcknowledged(absl::Duration timeout);

  // In order, with empty reports for what was let go.
  std::vector<v1::WorkerReport> Unacknowledged() const;

 private:
  bool HasAfter(int64_t sequence) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return sequence < last_sequence_;
  }
  // Lets go of half the reports of the kinds that `may_go` names.
  void LetGo(bool (*may_go)(v1::WorkerReport::ReportCase kind))
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t capacity_;
  mutable absl::Mutex mutex_;
  std::deque<v1::WorkerReport> reports_ ABSL_GUARDED_BY(mutex_);
  int64_t last_sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t acknowledged_ ABSL_GUARDED_BY(mutex_) = 0;
  bool interrupted_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_WORKER_REPORT_BUFFER_H_
