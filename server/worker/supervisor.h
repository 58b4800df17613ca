// The daemon's hold on its worker processes: starts them, adopts those that an earlier daemon
// started, passes commands on, and tells when they have ended and why. WorkerService (server/rpc)
// is its ear.
//
//   Supervisor supervisor(options);
//   JobManager manager(…, &supervisor, …);
//   supervisor.SetSink(&manager);
//   manager.Start();               // adopts
//   supervisor.AcceptWorkers();    // from now on a worker that nobody knows is sent home
//   WorkerListener listener = …    // server/rpc/worker_service.h
//
//   …
//   manager.StopScheduling();
//   supervisor.Shutdown();         // before the manager goes
//
// Its end leaves workers alone: they go on, and the next daemon adopts them.
#ifndef MILLRACE_SERVER_WORKER_SUPERVISOR_H_
#define MILLRACE_SERVER_WORKER_SUPERVISOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "millrace/v1/worker.pb.h"
#include "server/base/paths.h"
#include "server/jobs/worker_launcher.h"
#include "server/worker/worker_process.h"

namespace millrace {

// Safe for use by several threads. Calls its sink without holding a lock.
class Supervisor : public WorkerLauncher {
 public:
  struct Options {
    DataPaths paths;
    // Path of the program millrace-worker.
    std::string worker_program;
    // Path of the Unix socket of WorkerService, as workers are told it.
    std::string socket;
    // A worker asked to stop that has not ended after this long gets SIGTERM, then SIGKILL. Writing
    // a checkpoint of a large model takes minutes.
    absl::Duration stop_grace = absl::Minutes(15);
    // From SIGTERM to SIGKILL, after stop_grace.
    absl::Duration terminate_grace = absl::Minutes(1);
    // Called before a worker is started: gives back memory that can be spared.
    std::function<void()> make_room = [] {};
  };

  explicit Supervisor(Options options);
  ~Supervisor() override;

  // Before any other call.
  void SetSink(WorkerReportSink* sink) { sink_ = sink; }

  // Waits for calls of the sink in progress; none follows, and no worker is started. The destructor
  // does the same.
  void Shutdown();

  // WorkerLauncher.
  absl::Status Start(const std::string& job_id, int32_t attempt, const v1::JobSpec& spec) override;
  absl::StatusOr<bool> Adopt(const std::string& job_id, int32_t attempt) override;
  void RequestStop(const std::string& job_id, int32_t attempt, const std::string& trigger) override;
  void RequestCancel(const std::string& job_id, int32_t attempt, absl::Duration grace) override;

  // Every job that an earlier daemon left with a worker was offered to Adopt().
  void AcceptWorkers();

  // A worker said Hello. `send` must not block; it gets commands, those that waited at once, until
  // Detach(). A worker that is not the one of its job gets Cancel and is not kept. Returns the
  // connection's number for Detach(); UNAVAILABLE before AcceptWorkers().
  using SendCommand = std::function<void(const v1::WorkerCommand& command)>;
  absl::StatusOr<int64_t> Attach(const std::string& job_id, int32_t attempt, SendCommand send);

  // The stream ended, and all that it brought was passed to the sink.
  void Detach(const std::string& job_id, int64_t connection);

 private:
  struct Worker;

  absl::StatusOr<std::shared_ptr<Worker>> MakeWorker(const std::string& job_id, int32_t attempt);
  // Starts the worker's thread. UNAVAILABLE when there can be none; the worker is unknown then.
  absl::Status Watch(const std::shared_ptr<Worker>& worker);
  // The living worker of an attempt; null when there is none.
  Worker* Find(const std::string& job_id, int32_t attempt) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Until it is known which process has the job's lock, or that none has, or the supervisor ends.
  void FindProcess(Worker& worker);
  // Body of a worker's thread: until the process has ended.
  void WatchLoop(Worker& worker);
  // Sends the signal whose time has come.
  void Escalate(Worker& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Command(Worker& worker, const v1::WorkerCommand& command)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Passes on what the worker left on disk and reports its end.
  void ReportExit(Worker& worker);
  // Joins the threads of workers that have ended.
  void JoinEnded();

  const Options options_;
  WorkerReportSink* sink_ = nullptr;

  absl::Mutex mutex_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool accepting_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t last_connection_ ABSL_GUARDED_BY(mutex_) = 0;
  // By job.
  std::map<std::string, std::shared_ptr<Worker>> workers_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Worker>> ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_WORKER_SUPERVISOR_H_
