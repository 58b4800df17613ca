// ModelService over a ModelStore.
#ifndef MILLRACE_SERVER_RPC_MODEL_SERVICE_H_
#define MILLRACE_SERVER_RPC_MODEL_SERVICE_H_

#include "millrace/v1/model_service.grpc.pb.h"
#include "server/blobs/model_store.h"
#include "server/observe/metrics.h"
#include "server/rpc/transfer_slots.h"

namespace millrace {

// An upload takes a thread as long as it lasts; of those there are few at the same time.
class ModelServiceImpl final : public v1::ModelService::Service {
 public:
  // One upload more is UNAVAILABLE BUSY.
  static constexpr int kMostUploads = 16;

  // Both outlive this.
  ModelServiceImpl(ModelStore* store, Metrics* metrics) : store_(store), metrics_(metrics) {}

  grpc::Status CreateModel(grpc::ServerContext* context, const v1::CreateModelRequest* request,
                           v1::Model* response) override;
  grpc::Status UploadModelFile(grpc::ServerContext* context,
                               grpc::ServerReader<v1::UploadModelFileRequest>* reader,
                               v1::UploadModelFileResponse* response) override;
  grpc::Status FinalizeModel(grpc::ServerContext* context, const v1::FinalizeModelRequest* request,
                             v1::Model* response) override;
  grpc::Status RegisterModel(grpc::ServerContext* context, const v1::RegisterModelRequest* request,
                             v1::Model* response) override;
  grpc::Status GetModel(grpc::ServerContext* context, const v1::GetModelRequest* request,
                        v1::Model* response) override;
  grpc::Status ListModels(grpc::ServerContext* context, const v1::ListModelsRequest* request,
                          v1::ListModelsResponse* response) override;
  grpc::Status DeleteModel(grpc::ServerContext* context, const v1::DeleteModelRequest* request,
                           google::protobuf::Empty* response) override;

 private:
  ModelStore* const store_;
  Metrics* const metrics_;
  TransferSlots uploads_{kMostUploads};
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_RPC_MODEL_SERVICE_H_
