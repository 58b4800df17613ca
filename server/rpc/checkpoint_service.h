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

namespace millrace {

// A download takes a thread as long as it lasts; of those there are few at the same time.
class CheckpointServiceImpl final : public v1::CheckpointService::Service {
 public:
  // One download more is UNAVAILABLE BUSY.
  static constexpr int kMostDownloads = 16;

  // `store` and `metrics` outlive this. `check_job` is OK for a job that exists, else NOT_FOUND
  // JOB_NOT_FOUND.
  CheckpointServiceImpl(const CheckpointStore* store, Metrics* metrics,
                        std::function<absl::Status(const std::string& job_id)> check_job)
      : store_(store), metrics_(metrics), check_job_(std::move(check_job)) {}

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

 private:
  absl::StatusOr<StoredCheckpoint> Find(const std::string& name, std::string* job_id) const;

  const CheckpointStore* const store_;
  Metrics* const metrics_;
  const std::function<absl::Status(const std::string& job_id)> check_job_;
  TransferSlots downloads_{kMostDownloads};
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_RPC_CHECKPOINT_SERVICE_H_
