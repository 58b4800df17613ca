// DatasetService over the store of datasets.
#ifndef MILLRACE_SERVER_RPC_DATASET_SERVICE_H_
#define MILLRACE_SERVER_RPC_DATASET_SERVICE_H_

#include "millrace/v1/dataset_service.grpc.pb.h"
#include "server/blobs/blob_store.h"
#include "server/observe/metrics.h"
#include "server/rpc/transfer_slots.h"

namespace millrace {

// An upload takes a thread as long as it lasts; of those there are few at the same time.
class DatasetServiceImpl final : public v1::DatasetService::Service {
 public:
  // One upload more is UNAVAILABLE BUSY.
  static constexpr int kMostUploads = 16;

  // Both outlive this.
  DatasetServiceImpl(BlobStore* store, Metrics* metrics) : store_(store), metrics_(metrics) {}

  grpc::Status CreateDataset(grpc::ServerContext* context, const v1::CreateDatasetRequest* request,
                             v1::Dataset* response) override;
  grpc::Status UploadDatasetFile(grpc::ServerContext* context,
                                 grpc::ServerReader<v1::UploadDatasetFileRequest>* reader,
                                 v1::UploadDatasetFileResponse* response) override;
  grpc::Status FinalizeDataset(grpc::ServerContext* context,
                               const v1::FinalizeDatasetRequest* request,
                               v1::Dataset* response) override;
  grpc::Status GetDataset(grpc::ServerContext* context, const v1::GetDatasetRequest* request,
                          v1::Dataset* response) override;
  grpc::Status ListDatasets(grpc::ServerContext* context, const v1::ListDatasetsRequest* request,
                            v1::ListDatasetsResponse* response) override;
  grpc::Status DeleteDataset(grpc::ServerContext* context, const v1::DeleteDatasetRequest* request,
                             google::protobuf::Empty* response) override;

 private:
  BlobStore* const store_;
  Metrics* const metrics_;
  TransferSlots uploads_{kMostUploads};
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_RPC_DATASET_SERVICE_H_
