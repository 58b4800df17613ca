// The processes that hold loaded models, each one model (server/worker/infer_run.h).
//
//   grpc::ClientContext context;
//   absl::Status status = pool.Call(
//       {.name = "models/a", .path = path}, "bf16", &context,
//       [&](v1::InferenceService::Stub& stub) {
//         auto reader = stub.GenerateText(&context, request);
//         while (reader->Read(&response)) …;
//         return reader->Finish();
//       });
//
// A process is started by the first call that wants its model, serves all that follow, and ends
// when it was idle for a while, when another model wants its place, or when memory is needed.
// A model in use needs its files no more once it is loaded: checkpoints may be removed under it.
#ifndef MILLRACE_SERVER_INFERENCE_INFERENCE_POOL_H_
#define MILLRACE_SERVER_INFERENCE_INFERENCE_POOL_H_

#include <grpcpp/client_context.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "millrace/v1/worker.grpc.pb.h"
#include "server/worker/unique_fd.h"

namespace millrace {

struct ResolvedModel {
  std::string name;  // what clients call it
  std::string path;  // model directory or GGUF file
};

// Safe for use by several threads.
class InferencePool {
 public:
  struct Options {
    // Sockets, logs and tokens of its processes, as long as these live, and logs of those that
    // ended of themselves; emptied at start.
    std::string folder;
    // Path of the program millrace-worker.
    std::string worker_program;
    int max_loaded_models = 1;
    // Calls at the same time, of all models together.
    int max_calls = 8;
    // A process without calls ends after this long.
    absl::Duration idle_time = absl::Minutes(5);
    // Host memory that is free, and that a model's weights need.
    std::function<int64_t()> free_bytes;
    std::function<absl::StatusOr<int64_t>(const std::string& path, const std::string& compute)>
        weight_bytes;
  };

  static absl::StatusOr<std::unique_ptr<InferencePool>> Start(Options options);
  // Ends its processes. No call is under way.
  ~InferencePool();

  using Work = absl::FunctionRef<grpc::Status(v1::InferenceService::Stub& stub)>;

  // Runs `work`, which makes one call with `context`, on the process of the model. Errors have
  // details:
  // UNAVAILABLE BUSY when too many calls run, or other models that are in use take all places;
  // FAILED_PRECONDITION HOST_MEMORY_INSUFFICIENT; INVALID_ARGUMENT CONFIG_INVALID of a field or
  // MODEL_INVALID; INTERNAL with the process's last words when it ended.
  absl::Status Call(const ResolvedModel& model, const std::string& compute,
                    grpc::ClientContext* context, Work work);

  // Ends the processes that no call uses, and waits until their memory is back.
  void EndIdle();

  // Models that are loaded or being loaded.
  int loaded_models();

 private:
  struct Worker;
  using WorkerPtr = std::shared_ptr<Worker>;

  explicit InferencePool(Options options) : options_(std::move(options)) {}

  // A process with the model, with one more call.
  absl::StatusOr<WorkerPtr> Acquire(const ResolvedModel& model, const std::string& compute)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Release(const WorkerPtr& worker, bool keep) ABSL_LOCKS_EXCLUDED(mutex_);
  // The process that serves the model; null when none does.
  WorkerPtr Find(const std::string& path, const std::string& compute, const std::string& stamp)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether one more model may be loaded. False when an idle one was ended for it, which takes a
  // moment: ask again.
  absl::StatusOr<bool> HasRoom(const ResolvedModel& model, const std::string& compute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<WorkerPtr> StartWorker(const ResolvedModel& model, const std::string& compute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Kills the one without calls that was used longest ago and waits for its end; false when there
  // is none.
  bool EndOneIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Kill(Worker& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What a call's status says to the client.
  absl::Status Explain(const ResolvedModel& model, const WorkerPtr& worker,
                       const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // Body of the thread that sees processes end and ends those that are idle.
  void WatchLoop();
  void Wake();

  const Options options_;
  UniqueFd wake_;
  std::thread thread_;

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t started_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<WorkerPtr> workers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_INFERENCE_INFERENCE_POOL_H_
