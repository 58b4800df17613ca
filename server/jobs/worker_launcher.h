// The seam between jobs and the processes that run them. The job manager decides what should run
// and calls a WorkerLauncher; the launcher owns processes, locks and streams, and tells a
// WorkerReportSink (the job manager) what happened. Neither holds a lock of its own while it calls
// the other, so either may call back from within a call.
#ifndef MILLRACE_SERVER_JOBS_WORKER_LAUNCHER_H_
#define MILLRACE_SERVER_JOBS_WORKER_LAUNCHER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "millrace/v1/job_spec.pb.h"
#include "millrace/v1/training.pb.h"
#include "millrace/v1/worker.pb.h"

namespace millrace {

// How a worker process ended.
struct WorkerExit {
  // For a person: `exit code 3`, `killed by signal 9 (Killed)`, `its lock was released`.
  std::string description;
  // CRASH, or OUT_OF_MEMORY where the launcher knows better. Only counts when the worker left no
  // Ended report.
  v1::Reason reason = v1::REASON_CRASH;
  // False for a worker that was gone when the daemon started. Whether it crashed or was killed
  // along with the daemon or the whole box, nobody knows, so it does not count as the job's crash.
  bool counts_as_crash = true;
  // What the worker could not deliver; stored along with the exit.
  std::vector<v1::WorkerReport> unsent = {};
  // Called on some thread once exit and reports are stored for good. May be null.
  std::function<void()> on_stored = nullptr;
};

class WorkerLauncher {
 public:
  virtual ~WorkerLauncher() = default;

  // Starts the worker of attempt `attempt` of a job, in DataPaths::Job(job_id), with its output in
  // DataPaths::AttemptLog. `spec` is the job's resolved spec. The process holds the job's lock from
  // before it is started until it ends. After OK, exactly one WorkerExited follows; after an error,
  // none: UNAVAILABLE says that it cannot start now (another process holds the lock), and the job
  // waits in the queue; any other fails the job with its message.
  virtual absl::Status Start(const std::string& job_id, int32_t attempt,
                             const v1::JobSpec& spec) = 0;

  // Called once for each job that an earlier daemon left with a worker, before anything is started.
  // True: one WorkerExited follows as after Start, for that worker lives (the job's lock is held)
  // and will reconnect, or it left reports. False: no worker lives; no call follows. An error: a
  // worker may live, and cannot be watched; nothing may be started then.
  virtual absl::StatusOr<bool> Adopt(const std::string& job_id, int32_t attempt) = 0;

  // Asks the worker of that attempt to write a checkpoint and end; `trigger` is PAUSE or SHUTDOWN.
  // Remembered until a worker that is not connected yet connects. No effect without a worker.
  virtual void RequestStop(const std::string& job_id, int32_t attempt,
                           const std::string& trigger) = 0;

  // Asks the worker to end without a checkpoint, and kills it after `grace`. As above.
  virtual void RequestCancel(const std::string& job_id, int32_t attempt, absl::Duration grace) = 0;
};

class WorkerReportSink {
 public:
  // The sequence to acknowledge: every report of that attempt up to it is stored for good.
  using ReportsDone = std::function<void(absl::StatusOr<int64_t> acknowledge)>;

  virtual ~WorkerReportSink() = default;

  // Stores what a worker reported, in order, and makes the transitions that follow from it. Returns
  // at once; `done` is called once on another thread, when all is committed. Calls for one job are
  // applied in the order in which they were made; reports that came close together share a commit,
  // so pass them on as they arrive, without waiting for `done`.
  //
  // A report whose sequence is stored already is skipped. Reports of an attempt that is over, or of
  // an older one, are dropped and acknowledged. With no reports, `done` gets what is stored so far
  // (0 for nothing): the answer to Hello. Errors: NOT_FOUND JOB_NOT_FOUND for a job or attempt that
  // does not exist (the worker should end); FAILED_PRECONDITION when a sequence is left out (break
  // the stream; the worker sends again what was not acknowledged).
  virtual void ApplyReports(const std::string& job_id, int32_t attempt,
                            std::vector<v1::WorkerReport> reports, ReportsDone done) = 0;

  // The worker process is gone, its memory back with the system and its lock released. Call after
  // every report that it sent was passed on: the last Ended among them decides what becomes of the
  // job, else it is a crash. Unknown jobs and attempts are ignored.
  virtual void WorkerExited(const std::string& job_id, int32_t attempt, const WorkerExit& exit) = 0;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_JOBS_WORKER_LAUNCHER_H_
