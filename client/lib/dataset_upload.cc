#include "client/lib/dataset_upload.h"

#include <memory>
#include <utility>
#include <vector>

#include "client/lib/blob_upload.h"
#include "client/lib/local_file.h"

namespace millrace {
namespace {

using Stub = v1::DatasetService::StubInterface;

struct DatasetApi {
  static constexpr char kCollection[] = "datasets";
  using Resource = v1::Dataset;
  using UploadRequest = v1::UploadDatasetFileRequest;
  using UploadResponse = v1::UploadDatasetFileResponse;

  static bool IsReady(const v1::Dataset& dataset) { return dataset.state() == v1::Dataset::READY; }
  static absl::StatusOr<v1::Dataset> Create(Connection& connection, const std::string& id,
                                            const v1::Dataset& described) {
    v1::CreateDatasetRequest request;
    request.set_dataset_id(id);
    *request.mutable_dataset() = described;
    return connection.Call(connection.datasets(), &Stub::CreateDataset, request);
  }
  static absl::StatusOr<v1::Dataset> Get(Connection& connection, const std::string& name) {
    v1::GetDatasetRequest request;
    request.set_name(name);
    return connection.Call(connection.datasets(), &Stub::GetDataset, request);
  }
  static absl::StatusOr<v1::Dataset> Finalize(Connection& connection, const std::string& name) {
    v1::FinalizeDatasetRequest request;
    request.set_name(name);
    return connection.Call(connection.datasets(), &Stub::FinalizeDataset, request,
                           kFinalizeDeadline);
  }
  static std::unique_ptr<grpc::ClientWriterInterface<UploadRequest>> Open(
      Connection& connection, grpc::ClientContext* context, UploadResponse* response) {
    return connection.datasets().UploadDatasetFile(context, response);
  }
};

}  // namespace

absl::StatusOr<v1::Dataset> UploadDataset(Connection& connection, const std::string& dataset_id,
                                          const std::string& path, const TransferOptions& options) {
  absl::StatusOr<std::vector<std::string>> files = ListFiles(path);
  if (!files.ok()) return files.status();
  return BlobUpload<DatasetApi>(connection, dataset_id, path, *std::move(files), options).Run();
}

}  // namespace millrace
