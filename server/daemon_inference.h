// Generation and evaluation in the daemon: the pool of loaded models and the service over it, put
// together.
#ifndef MILLRACE_SERVER_DAEMON_INFERENCE_H_
#define MILLRACE_SERVER_DAEMON_INFERENCE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/paths.h"
#include "server/inference/inference_pool.h"
#include "server/observe/metrics.h"
#include "server/rpc/generation_service.h"

namespace millrace {

class DaemonInference {
 public:
  struct Options {
    DataPaths paths;
    std::string worker_program;
    int max_loaded_models = 1;
    // Outlives this.
    Metrics* metrics;
    // NOT_FOUND JOB_NOT_FOUND for a job that there is not.
    std::function<absl::Status(const std::string& job_id)> check_job;
    // NOT_FOUND DATASET_NOT_FOUND, or INVALID_ARGUMENT for one that is still being received.
    std::function<absl::Status(const std::string& dataset_id)> check_dataset;
  };
  static absl::StatusOr<std::unique_ptr<DaemonInference>> Start(Options options);

  grpc::Service* service() { return &service_; }
  // Gives back the memory of models that nobody uses.
  void EndIdle() { pool_->EndIdle(); }

 private:
  DaemonInference(std::unique_ptr<InferencePool> pool, GenerationServiceImpl::Options options)
      : pool_(std::move(pool)), service_(std::move(options)) {}

  std::unique_ptr<InferencePool> pool_;
  GenerationServiceImpl service_;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_DAEMON_INFERENCE_H_
