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
#include "server/rpc/status_to_grpc.h"

namespace millrace {
namespace {

enum class Files { kWith, kWithout };

v1::Dataset ToProto(const Dataset& dataset, Files files) {
  v1::Dataset proto;
  proto.set_name(DatasetName(dataset.id));
  proto.set_state(dataset.ready ? v1::Dataset::READY : v1::Dataset::UPLOADING);
  proto.set_size_bytes(dataset.size_bytes);
  proto.set_document_count(dataset.document_count);
  *proto.mutable_create_time() = google::protobuf::util::TimeUtil::NanosecondsToTimestamp(
      absl::ToUnixNanos(dataset.create_time));
  if (files == Files::kWithout) return proto;
  for (const DatasetFile& file : dataset.files) {
    v1::DatasetFile* added = proto.add_files();
    added->set_path(file.path);
    added->set_size_bytes(file.size_bytes);
    added->set_sha256(file.sha256);
    added->set_committed_bytes(file.committed_bytes);
  }
  return proto;
}

grpc::Status Answer(const absl::StatusOr<Dataset>& dataset, v1::Dataset* response) {
  if (dataset.ok()) *response = ToProto(*dataset, Files::kWith);
  return ToGrpcStatus(dataset.status());
}

}  // namespace

grpc::Status DatasetServiceImpl::CreateDataset(grpc::ServerContext*,
                                               const v1::CreateDatasetRequest* request,
                                               v1::Dataset* response) {
  std::vector<DatasetFile> files;
  for (const v1::DatasetFile& file : request->dataset().files()) {
    files.push_back({file.path(), file.size_bytes(), file.sha256()});
  }
  return Answer(store_->Create(request->dataset_id(), std::move(files)), response);
}

absl::Status DatasetServiceImpl::Receive(grpc::ServerReader<v1::UploadDatasetFileRequest>& reader,
                                         v1::UploadDatasetFileResponse* response) {
  MILLRACE_ASSIGN_OR_RETURN(const TransferSlots::Slot slot, uploads_.Take());
  v1::UploadDatasetFileRequest request;
  if (!reader.Read(&request) || !request.has_header()) {
    return MakeFieldError(ErrorReason::kRequestInvalid,
                          {{"header", "must be the first message of an upload"}});
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::string id,
                            ParseDatasetName("header.name", request.header().name()));
  MILLRACE_ASSIGN_OR_RETURN(
      std::unique_ptr<DatasetUpload> upload,
      store_->OpenUpload(id, request.header().path(), request.header().offset()));
  while (reader.Read(&request)) {
    if (request.has_header()) {
      return MakeFieldError(ErrorReason::kRequestInvalid,
                            {{"header", "must be the first message only; send data after it"}});
    }
    MILLRACE_RETURN_IF_ERROR(upload->Append(request.data()));
    metrics_->Add(metric::kTransferBytes, {"receive", "dataset"},
                  static_cast<double>(request.data().size()));
  }
  // After a broken connection too: what came is kept, and the file is resumed after it.
  MILLRACE_ASSIGN_OR_RETURN(const int64_t committed_bytes, upload->Finish());
  response->set_committed_bytes(committed_bytes);
  return absl::OkStatus();
}

grpc::Status DatasetServiceImpl::UploadDatasetFile(
    grpc::ServerContext*, grpc::ServerReader<v1::UploadDatasetFileRequest>* reader,
    v1::UploadDatasetFileResponse* response) {
  return ToGrpcStatus(Receive(*reader, response));
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
    std::vector<Dataset> datasets = store_->List(after, page_size + 1);
    if (static_cast<int>(datasets.size()) > page_size) {
      datasets.pop_back();
      response->set_next_page_token(EncodePageToken(datasets.back().id, "datasets"));
    }
    for (const Dataset& dataset : datasets) {
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
