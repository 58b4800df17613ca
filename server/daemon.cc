#include "server/daemon.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"
#include "server/base/errors.h"
#include "server/base/resource_names.h"
#include "server/base/version.h"
#include "server/blobs/dataset_store.h"
#include "server/blobs/tokenizer_store.h"
#include "server/jobs/state_machine.h"
#include "server/observe/host_reader.h"
#include "server/rpc/rpc_metrics.h"

namespace millrace {
namespace {

// Calls that wait on the disk at the same time.
constexpr int kExecutorThreads = 4;

}  // namespace

Daemon::Daemon(const Config& config)
    : config_(config),
      paths_(config.data_dir),
      job_metrics_(&metrics_),
      job_log_(&job_metrics_),
      checkpoints_(paths_) {}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const Config& config) {
  std::unique_ptr<Daemon> daemon(new Daemon(config));
  MILLRACE_RETURN_IF_ERROR(daemon->Open());
  MILLRACE_RETURN_IF_ERROR(daemon->Serve());
  return daemon;
}

absl::Status Daemon::OpenBlobs() {
  const auto jobs_using = [this](std::string (*name_of)(absl::string_view)) {
    return [this, name_of](const std::string& id) {
      auto names = manager_->JobsThatNeed(name_of(id));
      // A store that cannot be read keeps what there is.
      return names.ok() ? *std::move(names) : std::vector<std::string>{"a job"};
    };
  };
  BlobStore::Options datasets;
  datasets.folder = paths_.Datasets();
  datasets.jobs_using = jobs_using(&DatasetName);
  datasets.outstanding_elsewhere = [this] { return models_->blobs().OutstandingBytes(); };
  MILLRACE_ASSIGN_OR_RETURN(datasets_, OpenDatasets(std::move(datasets)));

  ModelStore::Options models;
  models.blobs.folder = paths_.Models();
  models.blobs.jobs_using = jobs_using(&ModelName);
  models.blobs.outstanding_elsewhere = [this] { return datasets_->OutstandingBytes(); };
  models.model_dirs = config_.model_dirs;
  MILLRACE_ASSIGN_OR_RETURN(models_, ModelStore::Open(std::move(models)));

  BlobStore::Options tokenizers;
  tokenizers.folder = paths_.Tokenizers();
  tokenizers.jobs_using = jobs_using(&TokenizerName);
  MILLRACE_ASSIGN_OR_RETURN(tokenizers_, OpenTokenizers(std::move(tokenizers)));
  return absl::OkStatus();
}

absl::Status Daemon::Open() {
  MILLRACE_ASSIGN_OR_RETURN(lock_, DataDirLock::Acquire(paths_));
  MILLRACE_ASSIGN_OR_RETURN(store_, JobStore::Open(paths_.Database(), {}));
  store_->set_commit_observer([this](absl::Duration time) {
    metrics_.Observe(metric::kStoreCommit, {}, absl::ToDoubleSeconds(time));
  });

  MILLRACE_RETURN_IF_ERROR(OpenBlobs());

  JobValidator::Options validator;
  validator.datasets = datasets_.get();
  validator.paths = paths_;
  validator_ = std::make_unique<JobValidator>(std::move(validator));

  Supervisor::Options supervisor{
      .paths = paths_, .worker_program = config_.worker_binary, .socket = paths_.WorkerSocket()};
  // None is started before inference_ is there.
  supervisor.make_room = [this] { inference_->EndIdle(); };
  supervisor_ = std::make_unique<Supervisor>(std::move(supervisor));

  JobManager::Options jobs{.paths = paths_,
                           .max_running_jobs = config_.max_running_jobs,
                           .max_queued_jobs = config_.max_queued_jobs,
                           .max_restarts = config_.max_restarts,
                           .cancel_grace = config_.cancel_grace};
  manager_ = std::make_unique<JobManager>(std::move(jobs), store_.get(), supervisor_.get(),
                                          validator_.get(), &job_log_);
  supervisor_->SetSink(manager_.get());
  MILLRACE_RETURN_IF_ERROR(manager_->RemoveLeftovers());
  AddCollectors();
  return absl::OkStatus();
}

absl::Status Daemon::Serve() {
  // Before the public server, whose health and reflection services workers have no use for.
  MILLRACE_ASSIGN_OR_RETURN(
      worker_listener_,
      WorkerListener::Start(paths_.WorkerSocket(), supervisor_.get(), manager_.get()));
  executor_ = std::make_unique<Executor>(kExecutorThreads);
  job_service_ = std::make_unique<JobServiceAdapter>(paths_, manager_.get(), validator_.get(),
                                                     executor_.get());
  node_service_ = std::make_unique<NodeServiceAdapter>(paths_.root(), manager_.get());
  dataset_service_ = std::make_unique<DatasetServiceImpl>(datasets_.get(), &metrics_);
  exporter_ = std::make_unique<CheckpointExporter>(CheckpointExporter::Options{
      .worker_program = config_.worker_binary, .checkpoints = &checkpoints_});
  tokenizer_trainer_ = std::make_unique<TokenizerTrainer>(
      TokenizerTrainer::Options{.worker_program = config_.worker_binary,
                                .folder = paths_.Tokenizers(),
                                .datasets = datasets_.get(),
                                .tokenizers = tokenizers_.get()});
  tokenizer_service_ =
      std::make_unique<TokenizerServiceImpl>(tokenizers_.get(), tokenizer_trainer_.get());
  model_service_ = std::make_unique<ModelServiceImpl>(models_.get(), &metrics_);
  checkpoint_service_ = std::make_unique<CheckpointServiceImpl>(
      &checkpoints_, exporter_.get(), &metrics_,
      [this](const std::string& id) { return manager_->GetJob(id).status(); });
  MILLRACE_RETURN_IF_ERROR(StartInference());
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(MakeRpcMetrics(&metrics_));
  // Both ports and the endpoint file before the first worker: a daemon that cannot have them leaves
  // nothing behind.
  MILLRACE_ASSIGN_OR_RETURN(
      grpc_server_,
      GrpcServer::Start(
          {.listen = config_.listen},
          {job_service_.get(), node_service_.get(), dataset_service_.get(), model_service_.get(),
           tokenizer_service_.get(), checkpoint_service_.get(), inference_->service()},
          std::move(interceptors)));
  if (!config_.http_listen.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(http_server_, HttpServer::Start(config_.http_listen, &metrics_));
  }
  MILLRACE_RETURN_IF_ERROR(WriteEndpoint());
  MILLRACE_RETURN_IF_ERROR(manager_->Start());
  supervisor_->AcceptWorkers();
  Calibrate();
  return absl::OkStatus();
}

absl::Status Daemon::StartInference() {
  DaemonInference::Options options{.paths = paths_,
                                   .worker_program = config_.worker_binary,
                                   .max_loaded_models = config_.max_loaded_models,
                                   .metrics = &metrics_};
  options.check_job = [this](const std::string& id) { return manager_->GetJob(id).status(); };
  options.check_dataset = [this](const std::string& id) -> absl::Status {
    MILLRACE_ASSIGN_OR_RETURN(const auto dataset, datasets_->Get(id));
    if (dataset.ready) return absl::OkStatus();
    return MakeFieldError(
        ErrorReason::kDatasetInvalid,
        {{"dataset",
          absl::StrCat(DatasetName(id), " is still being uploaded; finish the upload")}});
  };
  MILLRACE_ASSIGN_OR_RETURN(inference_, DaemonInference::Start(std::move(options)));
  return absl::OkStatus();
}

void Daemon::Calibrate() {
  calibration_ = std::thread([this] {
    const absl::Time start = absl::Now();
    validator_->Calibrate();
    spdlog::debug("the processor's profile is ready after {}",
                  absl::FormatDuration(absl::Now() - start));
  });
}

absl::Status Daemon::WriteEndpoint() {
  return WriteFileAtomically(
      paths_.Endpoint(), absl::StrCat("listen=", grpc_address(), "\nhttp_listen=", http_address(),
                                      "\npid=", getpid(), "\n"));
}

Daemon::~Daemon() {
  if (lock_ == nullptr) return;
  if (grpc_server_ != nullptr) {
    unlink(paths_.Endpoint().c_str());
    grpc_server_->Shutdown(absl::Milliseconds(500));
  }
  http_server_ = nullptr;
  // Before the manager, which they call.
  worker_listener_ = nullptr;
  if (manager_ != nullptr) manager_->StopScheduling();
  if (supervisor_ != nullptr) supervisor_->Shutdown();
  if (calibration_.joinable()) calibration_.join();
}

void Daemon::BeginDrain() {
  grpc_server_->SetServing(false);
  if (http_server_ != nullptr) http_server_->SetServing(false);
  manager_->BeginDrain();
}

void Daemon::AddCollectors() {
  metrics_.Set(metric::kBuildInfo, {kVersion}, 1);
  metrics_.Set(metric::kStartTime, {}, absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
  metrics_.AddCollector([this] {
    metrics_.Set(metric::kResidentMemory, {}, static_cast<double>(ReadResidentBytes()));
    metrics_.Set(metric::kWatchSubscribers, {}, static_cast<double>(manager_->watcher_count()));
    if (const auto storage = ReadStorageSpace(paths_.root()); storage.ok()) {
      metrics_.Set(metric::kStorageFree, {}, static_cast<double>(storage->free_bytes));
    }
    metrics_.Set(
        metric::kStorageReserved, {},
        static_cast<double>(datasets_->OutstandingBytes() + models_->blobs().OutstandingBytes()));
    metrics_.Set(metric::kCheckpointStored, {}, static_cast<double>(checkpoints_.StoredBytes()));
    const auto counts = manager_->CountByState();
    if (!counts.ok()) return;
    for (int state = v1::Job::QUEUED; state < v1::Job::State_ARRAYSIZE; ++state) {
      const auto found = counts->find(static_cast<v1::Job::State>(state));
      metrics_.Set(metric::kJobs, {StateName(static_cast<v1::Job::State>(state))},
                   found == counts->end() ? 0.0 : static_cast<double>(found->second));
    }
  });
}

}  // namespace millrace
