#include "client/lib/model_upload.h"

#include <memory>

#include "client/lib/blob_upload.h"

namespace millrace {
namespace {

using Stub = v1::ModelService::StubInterface;

struct ModelApi {
  static constexpr char kCollection[] = "models";
  using Resource = v1::Model;
  using UploadRequest = v1::UploadModelFileRequest;
  using UploadResponse = v1::UploadModelFileResponse;

  static bool IsReady(const v1::Model& model) { return model.state() == v1::Model::READY; }
  static absl::StatusOr<v1::Model> Create(Connection& connection, const std::string& id,
                                          const v1::Model& described) {
    v1::CreateModelRequest request;
    request.set_model_id(id);
    *request.mutable_model() = described;
    return connection.Call(connection.models(), &Stub::CreateModel, request);
  }
  static absl::StatusOr<v1::Model> Get(Connection& connection, const std::string& name) {
    v1::GetModelRequest request;
    request.set_name(name);
    return connection.Call(connection.models(), &Stub::GetModel, request);
  }
  static absl::StatusOr<v1::Model> Finalize(Connection& connection, const std::string& name) {
    v1::FinalizeModelRequest request;
    request.set_name(name);
    return connection.Call(connection.models(), &Stub::FinalizeModel, request, kFinalizeDeadline);
  }
  static std::unique_ptr<grpc::ClientWriterInterface<UploadRequest>> Open(
      Connection& connection, grpc::ClientContext* context, UploadResponse* response) {
    return connection.models().UploadModelFile(context, response);
  }
};

}  // namespace

absl::StatusOr<v1::Model> UploadModel(Connection& connection, const std::string& model_id,
                                      const std::string& path, const ModelFiles& files,
                                      const TransferOptions& options) {
  return BlobUpload<ModelApi>(connection, model_id, path, files.files, options).Run();
}

}  // namespace millrace
