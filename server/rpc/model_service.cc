#include "server/rpc/model_service.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/status_macros.h"
#include "google/protobuf/util/time_util.h"
#include "server/base/pages.h"
#include "server/base/resource_names.h"
#include "server/blobs/model_path.h"
#include "server/rpc/receive_file.h"
#include "server/rpc/status_to_grpc.h"

namespace millrace {
namespace {

enum class Files { kWith, kWithout };

void SetFacts(const StoredBlob& model, v1::Model* proto) {
  proto->set_path(TextFact(model, kModelPathFact));
  proto->set_format(TextFact(model, model_fact::kFormat) == model_fact::kGguf
                        ? v1::Model::GGUF
                        : v1::Model::SAFETENSORS);
  proto->set_family(TextFact(model, model_fact::kFamily));
  proto->set_parameter_count(NumberFact(model, model_fact::kParameters));
  proto->set_vocab_size(NumberFact(model, model_fact::kVocab));
  proto->set_context_length(NumberFact(model, model_fact::kContext));
  proto->set_layer_count(static_cast<int32_t>(NumberFact(model, model_fact::kLayers)));
  proto->set_hidden_size(NumberFact(model, model_fact::kHidden));
  proto->set_weight_type(TextFact(model, model_fact::kWeightType));
  proto->set_tokenizer(TextFact(model, model_fact::kTokenizer));
  const auto notes = model.facts.find(model_fact::kNotes);
  if (notes == model.facts.end() || !notes->is_array()) return;
  for (const auto& note : *notes) {
    if (note.is_string()) proto->add_notes(note.get<std::string>());
  }
}

v1::Model ToProto(const StoredBlob& model, Files files) {
  v1::Model proto;
  proto.set_name(ModelName(model.id));
  proto.set_state(model.ready ? v1::Model::READY : v1::Model::UPLOADING);
  proto.set_size_bytes(model.size_bytes);
  *proto.mutable_create_time() = google::protobuf::util::TimeUtil::NanosecondsToTimestamp(
      absl::ToUnixNanos(model.create_time));
  if (model.ready) SetFacts(model, &proto);
  if (files == Files::kWithout) return proto;
  for (const BlobFile& file : model.files) {
    v1::ModelFile* added = proto.add_files();
    added->set_path(file.path);
    added->set_size_bytes(file.size_bytes);
    added->set_sha256(file.sha256);
    added->set_committed_bytes(file.committed_bytes);
  }
  return proto;
}

grpc::Status Answer(const absl::StatusOr<StoredBlob>& model, v1::Model* response) {
  if (model.ok()) *response = ToProto(*model, Files::kWith);
  return ToGrpcStatus(model.status());
}

}  // namespace

grpc::Status ModelServiceImpl::CreateModel(grpc::ServerContext*,
                                           const v1::CreateModelRequest* request,
                                           v1::Model* response) {
  std::vector<BlobFile> files;
  for (const v1::ModelFile& file : request->model().files()) {
    files.push_back({file.path(), file.size_bytes(), file.sha256()});
  }
  return Answer(store_->Create(request->model_id(), std::move(files)), response);
}

grpc::Status ModelServiceImpl::UploadModelFile(
    grpc::ServerContext*, grpc::ServerReader<v1::UploadModelFileRequest>* reader,
    v1::UploadModelFileResponse* response) {
  return ToGrpcStatus(ReceiveFile(
      *reader, uploads_, metrics_, "model",
      [this](const v1::UploadModelFileRequest::Header& header)
          -> absl::StatusOr<std::unique_ptr<FileUpload>> {
        MILLRACE_ASSIGN_OR_RETURN(const std::string id,
                                  ParseModelName("header.name", header.name()));
        return store_->blobs().OpenUpload(id, header.path(), header.offset());
      },
      response));
}

grpc::Status ModelServiceImpl::FinalizeModel(grpc::ServerContext*,
                                             const v1::FinalizeModelRequest* request,
                                             v1::Model* response) {
  const absl::StatusOr<std::string> id = ParseModelName("name", request->name());
  if (!id.ok()) return ToGrpcStatus(id.status());
  return Answer(store_->blobs().Finalize(*id), response);
}

grpc::Status ModelServiceImpl::RegisterModel(grpc::ServerContext*,
                                             const v1::RegisterModelRequest* request,
                                             v1::Model* response) {
  return Answer(store_->Register(request->model_id(), request->path()), response);
}

grpc::Status ModelServiceImpl::GetModel(grpc::ServerContext*, const v1::GetModelRequest* request,
                                        v1::Model* response) {
  const absl::StatusOr<std::string> id = ParseModelName("name", request->name());
  if (!id.ok()) return ToGrpcStatus(id.status());
  return Answer(store_->blobs().Get(*id), response);
}

grpc::Status ModelServiceImpl::ListModels(grpc::ServerContext*,
                                          const v1::ListModelsRequest* request,
                                          v1::ListModelsResponse* response) {
  const auto list = [&]() -> absl::Status {
    MILLRACE_ASSIGN_OR_RETURN(const int page_size, PageSize(request->page_size()));
    MILLRACE_ASSIGN_OR_RETURN(const std::string after,
                              DecodePageToken(request->page_token(), "models"));
    // One more than asked for tells whether there is a next page.
    std::vector<StoredBlob> models = store_->blobs().List(after, page_size + 1);
    if (static_cast<int>(models.size()) > page_size) {
      models.pop_back();
      response->set_next_page_token(EncodePageToken(models.back().id, "models"));
    }
    for (const StoredBlob& model : models)
      *response->add_models() = ToProto(model, Files::kWithout);
    return absl::OkStatus();
  };
  return ToGrpcStatus(list());
}

grpc::Status ModelServiceImpl::DeleteModel(grpc::ServerContext*,
                                           const v1::DeleteModelRequest* request,
                                           google::protobuf::Empty*) {
  const absl::StatusOr<std::string> id = ParseModelName("name", request->name());
  return ToGrpcStatus(id.ok() ? store_->blobs().Delete(*id) : id.status());
}

}  // namespace millrace
