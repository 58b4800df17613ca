// CheckpointService over a CheckpointStore.
#ifndef MILLRACE_SERVER_RPC_CHECKPOINT_SERVICE_H_
#define MILLRACE_SERVER_RPC_CHECKPOINT_SERVICE_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "millrace/v1/checkpoint_service.grpc.pb.h"
#include "server/blobs/checkpoint_store.h"
#include "server/observe/metrics.h"
#include "server/rpc/transfer_slots.h"
#include "server/worker/checkpoint_exporter.h"

namespace millrace {

// A download takes a thread as long as it lasts; of those there are few at the same time.
class CheckpointServiceImpl final : public v1::CheckpointService::Service {
 public:
  // One download or export more is UNAVAILABLE BUSY.
  static constexpr int kMostDownloads = 16;
  static constexpr int kMostExports = 2;

  // `store`, `exporter` and `metrics` outlive this. `check_job` is OK for a job that exists, else
  // NOT_FOUND JOB_NOT_FOUND.
  CheckpointServiceImpl(const CheckpointStore* store, CheckpointExporter* exporter,
                        Metrics* metrics,
                        std::function<absl::Status(const std::string& job_id)> check_job)
      : store_(store), exporter_(exporter), metrics_(metrics), check_job_(std::move(check_job)) {}

  grpc::Status ListCheckpoints(grpc::ServerContext* context,
                               const v1::ListCheckpointsRequest* request,
                               v1::ListCheckpointsResponse* response) override;
  grpc::Status GetCheckpoint(grpc::ServerContext* context, const v1::GetCheckpointRequest* request,
                             v1::Checkpoint* response) override;
  grpc::Status ListCheckpointFiles(grpc::ServerContext* context,
                                   const v1::ListCheckpointFilesRequest* request,
                                   v1::ListCheckpointFilesResponse* response) override;
  grpc::Status DownloadCheckpointFile(
      grpc::ServerContext* context, const v1::DownloadCheckpointFileRequest* request,
      grpc::ServerWriter<v1::DownloadCheckpointFileResponse>* writer) override;
  grpc::Status ExportCheckpoint(grpc::ServerContext* context,
                                const v1::ExportCheckpointRequest* request,
                                grpc::ServerWriter<v1::ExportCheckpointResponse>* writer) override;

 private:
  absl::StatusOr<StoredCheckpoint> Find(const std::string& name, std::string* job_id) const;

  const CheckpointStore* const store_;
  CheckpointExporter* const exporter_;
  Metrics* const metrics_;
  const std::function<absl::Status(const std::string& job_id)> check_job_;
  TransferSlots downloads_{kMostDownloads};
  TransferSlots exports_{kMostExports};
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_RPC_CHECKPOINT_SERVICE_H_
