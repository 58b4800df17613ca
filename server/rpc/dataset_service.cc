#include "server/rpc/dataset_service.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "google/protobuf/util/time_util.h"
#include "server/base/errors.h"
#include "server/base/pages.h"
#include "server/base/resource_names.h"
#include "server/blobs/dataset_store.h"
#include "server/rpc/receive_file.h"
#include "server/rpc/status_to_grpc.h"

namespace millrace {
namespace {

enum class Files { kWith, kWithout };

v1::Dataset ToProto(const StoredBlob& dataset, Files files) {
  v1::Dataset proto;
  proto.set_name(DatasetName(dataset.id));
  proto.set_state(dataset.ready ? v1::Dataset::READY : v1::Dataset::UPLOADING);
  proto.set_size_bytes(dataset.size_bytes);
  proto.set_document_count(DocumentCount(dataset));
  *proto.mutable_create_time() = google::protobuf::util::TimeUtil::NanosecondsToTimestamp(
      absl::ToUnixNanos(dataset.create_time));
  if (files == Files::kWithout) return proto;
  for (const BlobFile& file : dataset.files) {
    v1::DatasetFile* added = proto.add_files();
    added->set_path(file.path);
    added->set_size_bytes(file.size_bytes);
    added->set_sha256(file.sha256);
    added->set_committed_bytes(file.committed_bytes);
  }
  return proto;
}

grpc::Status Answer(const absl::StatusOr<StoredBlob>& dataset, v1::Dataset* response) {
  if (dataset.ok()) *response = ToProto(*dataset, Files::kWith);
  return ToGrpcStatus(dataset.status());
}

}  // namespace

grpc::Status DatasetServiceImpl::CreateDataset(grpc::ServerContext*,
                                               const v1::CreateDatasetRequest* request,
                                               v1::Dataset* response) {
  std::vector<BlobFile> files;
  for (const v1::DatasetFile& file : request->dataset().files()) {
    files.push_back({file.path(), file.size_bytes(), file.sha256()});
  }
  return Answer(store_->Create(request->dataset_id(), std::move(files)), response);
}

grpc::Status DatasetServiceImpl::UploadDatasetFile(
    grpc::ServerContext*, grpc::ServerReader<v1::UploadDatasetFileRequest>* reader,
    v1::UploadDatasetFileResponse* response) {
  return ToGrpcStatus(ReceiveFile(
      *reader, uploads_, metrics_, "dataset",
      [this](const v1::UploadDatasetFileRequest::Header& header)
          -> absl::StatusOr<std::unique_ptr<FileUpload>> {
        MILLRACE_ASSIGN_OR_RETURN(const std::string id,
                                  ParseDatasetName("header.name", header.name()));
        return store_->OpenUpload(id, header.path(), header.offset());
      },
      response));
}

grpc::Status DatasetServiceImpl::FinalizeDataset(grpc::ServerContext*,
                                                 const v1::FinalizeDatasetRequest* request,
                                                 v1::Dataset* response) {
  const absl::StatusOr<std::string> id = ParseDatasetName("name", request->name());
  if (!id.ok()) return ToGrpcStatus(id.status());
  return Answer(store_->Finalize(*id), response);
}

grpc::Status DatasetServiceImpl::GetDataset(grpc::ServerContext*,
                                            const v1::GetDatasetRequest* request,
                                            v1::Dataset* response) {
  const absl::StatusOr<std::string> id = ParseDatasetName("name", request->name());
  if (!id.ok()) return ToGrpcStatus(id.status());
  return Answer(store_->Get(*id), response);
}

grpc::Status DatasetServiceImpl::ListDatasets(grpc::ServerContext*,
                                              const v1::ListDatasetsRequest* request,
                                              v1::ListDatasetsResponse* response) {
  const auto list = [&]() -> absl::Status {
    MILLRACE_ASSIGN_OR_RETURN(const int page_size, PageSize(request->page_size()));
    MILLRACE_ASSIGN_OR_RETURN(const std::string after,
                              DecodePageToken(request->page_token(), "datasets"));
    // One more than asked for tells whether there is a next page.
    std::vector<StoredBlob> datasets = store_->List(after, page_size + 1);
    if (static_cast<int>(datasets.size()) > page_size) {
      datasets.pop_back();
      response->set_next_page_token(EncodePageToken(datasets.back().id, "datasets"));
    }
    for (const StoredBlob& dataset : datasets) {
      *response->add_datasets() = ToProto(dataset, Files::kWithout);
    }
    return absl::OkStatus();
  };
  return ToGrpcStatus(list());
}

grpc::Status DatasetServiceImpl::DeleteDataset(grpc::ServerContext*,
                                               const v1::DeleteDatasetRequest* request,
                                               google::protobuf::Empty*) {
  const absl::StatusOr<std::string> id = ParseDatasetName("name", request->name());
  return ToGrpcStatus(id.ok() ? store_->Delete(*id) : id.status());
}

}  // namespace millrace
