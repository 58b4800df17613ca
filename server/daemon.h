// millraced put together: the stores, the job manager, the supervisor of workers, and the
// endpoints.
//
//   MILLRACE_ASSIGN_OR_RETURN(auto daemon, Daemon::Start(config));
//   … until SIGTERM …
//   daemon->BeginDrain();
//   daemon->WaitUntilIdle(config.drain_timeout);
#ifndef MILLRACE_SERVER_DAEMON_H_
#define MILLRACE_SERVER_DAEMON_H_

#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/paths.h"
#include "server/blobs/blob_store.h"
#include "server/blobs/checkpoint_store.h"
#include "server/blobs/model_store.h"
#include "server/config.h"
#include "server/daemon_inference.h"
#include "server/data_dir_lock.h"
#include "server/job_log.h"
#include "server/jobs/job_manager.h"
#include "server/jobs/job_store.h"
#include "server/observe/http_server.h"
#include "server/observe/job_metrics.h"
#include "server/observe/metrics.h"
#include "server/rpc/checkpoint_service.h"
#include "server/rpc/dataset_service.h"
#include "server/rpc/executor.h"
#include "server/rpc/grpc_server.h"
#include "server/rpc/job_service.h"
#include "server/rpc/model_service.h"
#include "server/rpc/node_service.h"
#include "server/rpc/tokenizer_service.h"
#include "server/rpc/worker_service.h"
#include "server/worker/checkpoint_exporter.h"
#include "server/worker/job_validator.h"
#include "server/worker/supervisor.h"
#include "server/worker/tokenizer_trainer.h"

namespace millrace {

class Daemon {
 public:
  // Serves when it returns; jobs of an earlier daemon are adopted or queued again. Ends without a
  // trace when it fails.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const Config& config);

  // Ends at once; workers that live go on, and the next daemon adopts them.
  ~Daemon();

  // As bound; `http_address` is empty without an HTTP port.
  const std::string& grpc_address() const { return grpc_server_->address(); }
  std::string http_address() const { return http_server_ ? http_server_->address() : ""; }

  // No new jobs; running ones are asked to save and stop; health says NOT_SERVING.
  void BeginDrain();
  // Waits for the running ones. False when `timeout` passed first.
  bool WaitUntilIdle(absl::Duration timeout) { return manager_->WaitUntilIdle(timeout); }

 private:
  explicit Daemon(const Config& config);
  absl::Status Open();
  // The stores of datasets, models and tokenizers, and what they know of each other and of jobs.
  absl::Status OpenBlobs();
  absl::Status Serve();
  absl::Status StartInference();
  void AddCollectors();
  absl::Status WriteEndpoint();
  // In the background: what it measures delays nobody but those who ask for plans.
  void Calibrate();

  const Config config_;
  const DataPaths paths_;

  // In the order in which one stands on the other.
  std::unique_ptr<DataDirLock> lock_;
  Metrics metrics_;
  JobMetrics job_metrics_;
  JobLog job_log_;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<BlobStore> datasets_;
  std::unique_ptr<ModelStore> models_;
  std::unique_ptr<BlobStore> tokenizers_;
  CheckpointStore checkpoints_;
  std::unique_ptr<CheckpointExporter> exporter_;
  std::unique_ptr<TokenizerTrainer> tokenizer_trainer_;
  std::unique_ptr<JobValidator> validator_;
  std::unique_ptr<Supervisor> supervisor_;
  std::unique_ptr<JobManager> manager_;
  std::unique_ptr<WorkerListener> worker_listener_;

  std::unique_ptr<Executor> executor_;
  std::unique_ptr<JobServiceAdapter> job_service_;
  std::unique_ptr<NodeServiceAdapter> node_service_;
  std::unique_ptr<DatasetServiceImpl> dataset_service_;
  std::unique_ptr<ModelServiceImpl> model_service_;
  std::unique_ptr<TokenizerServiceImpl> tokenizer_service_;
  std::unique_ptr<CheckpointServiceImpl> checkpoint_service_;
  std::unique_ptr<DaemonInference> inference_;
  std::unique_ptr<GrpcServer> grpc_server_;
  std::unique_ptr<HttpServer> http_server_;
  std::thread calibration_;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_DAEMON_H_
