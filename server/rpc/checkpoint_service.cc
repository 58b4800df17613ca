#include "server/rpc/checkpoint_service.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "google/protobuf/util/time_util.h"
#include "server/base/pages.h"
#include "server/base/resource_names.h"
#include "server/rpc/status_to_grpc.h"

namespace millrace {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;

v1::Checkpoint ToProto(const std::string& job_id, const StoredCheckpoint& checkpoint) {
  v1::Checkpoint proto;
  proto.set_name(absl::StrCat(JobName(job_id), "/checkpoints/", checkpoint.step));
  proto.set_step(checkpoint.step);
  proto.set_size_bytes(checkpoint.size_bytes);
  *proto.mutable_create_time() = google::protobuf::util::TimeUtil::NanosecondsToTimestamp(
      absl::ToUnixNanos(checkpoint.create_time));
  if (checkpoint.evaluation_loss.has_value()) {
    proto.set_evaluation_loss(*checkpoint.evaluation_loss);
  }
  return proto;
}

// One page of `all`, newest first; the token holds the step of the last one given.
absl::Status FillPage(const std::string& job_id, const v1::ListCheckpointsRequest& request,
                      const std::vector<StoredCheckpoint>& all,
                      v1::ListCheckpointsResponse* response) {
  MILLRACE_ASSIGN_OR_RETURN(const int page_size, PageSize(request.page_size()));
  MILLRACE_ASSIGN_OR_RETURN(const std::string before,
                            DecodePageToken(request.page_token(), request.parent()));
  int64_t before_step = INT64_MAX;
  if (!before.empty() && !absl::SimpleAtoi(before, &before_step)) before_step = INT64_MAX;
  for (const StoredCheckpoint& checkpoint : all) {
    if (checkpoint.step >= before_step) continue;
    if (response->checkpoints_size() == page_size) {
      response->set_next_page_token(EncodePageToken(
          absl::StrCat(response->checkpoints(page_size - 1).step()), request.parent()));
      break;
    }
    *response->add_checkpoints() = ToProto(job_id, checkpoint);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StoredCheckpoint> CheckpointServiceImpl::Find(const std::string& name,
                                                             std::string* job_id) const {
  MILLRACE_ASSIGN_OR_RETURN(const CheckpointName parts, ParseCheckpointName("name", name));
  MILLRACE_RETURN_IF_ERROR(check_job_(parts.job_id));
  *job_id = parts.job_id;
  return store_->Get(parts.job_id, parts.step);
}

grpc::Status CheckpointServiceImpl::ListCheckpoints(grpc::ServerContext*,
                                                    const v1::ListCheckpointsRequest* request,
                                                    v1::ListCheckpointsResponse* response) {
  const auto list = [&]() -> absl::Status {
    MILLRACE_ASSIGN_OR_RETURN(const std::string job_id, ParseJobName("parent", request->parent()));
    MILLRACE_RETURN_IF_ERROR(check_job_(job_id));
    return FillPage(job_id, *request, store_->List(job_id), response);
  };
  return ToGrpcStatus(list());
}

grpc::Status CheckpointServiceImpl::GetCheckpoint(grpc::ServerContext*,
                                                  const v1::GetCheckpointRequest* request,
                                                  v1::Checkpoint* response) {
  std::string job_id;
  const absl::StatusOr<StoredCheckpoint> checkpoint = Find(request->name(), &job_id);
  if (checkpoint.ok()) *response = ToProto(job_id, *checkpoint);
  return ToGrpcStatus(checkpoint.status());
}

grpc::Status CheckpointServiceImpl::ListCheckpointFiles(
    grpc::ServerContext*, const v1::ListCheckpointFilesRequest* request,
    v1::ListCheckpointFilesResponse* response) {
  std::string job_id;
  const absl::StatusOr<StoredCheckpoint> checkpoint = Find(request->name(), &job_id);
  if (!checkpoint.ok()) return ToGrpcStatus(checkpoint.status());
  for (const StoredCheckpoint::File& file : checkpoint->files) {
    v1::CheckpointFile* proto = response->add_files();
    proto->set_path(file.path);
    proto->set_size_bytes(file.size_bytes);
    proto->set_sha256(file.sha256);
  }
  return grpc::Status::OK;
}

grpc::Status CheckpointServiceImpl::DownloadCheckpointFile(
    grpc::ServerContext* context, const v1::DownloadCheckpointFileRequest* request,
    grpc::ServerWriter<v1::DownloadCheckpointFileResponse>* writer) {
  const auto send = [&]() -> absl::Status {
    MILLRACE_ASSIGN_OR_RETURN(const TransferSlots::Slot slot, downloads_.Take());
    MILLRACE_ASSIGN_OR_RETURN(const CheckpointName name,
                              ParseCheckpointName("name", request->name()));
    MILLRACE_RETURN_IF_ERROR(check_job_(name.job_id));
    MILLRACE_ASSIGN_OR_RETURN(
        CheckpointFileReader reader,
        store_->OpenFile(name.job_id, name.step, request->path(), request->offset()));
    v1::DownloadCheckpointFileResponse response;
    while (true) {
      MILLRACE_RETURN_IF_ERROR(reader.Read(kChunkBytes, response.mutable_data()));
      if (response.data().empty() || !writer->Write(response)) return absl::OkStatus();
      metrics_->Add(metric::kTransferBytes, {"send", "checkpoint"},
                    static_cast<double>(response.data().size()));
    }
  };
  return ToGrpcStatus(send());
}

grpc::Status CheckpointServiceImpl::ExportCheckpoint(
    grpc::ServerContext* context, const v1::ExportCheckpointRequest* request,
    grpc::ServerWriter<v1::ExportCheckpointResponse>* writer) {
  const auto make = [&]() -> absl::Status {
    MILLRACE_ASSIGN_OR_RETURN(const CheckpointName name,
                              ParseCheckpointName("name", request->name()));
    MILLRACE_RETURN_IF_ERROR(check_job_(name.job_id));
    MILLRACE_ASSIGN_OR_RETURN(const TransferSlots::Slot slot, exports_.Take());
    v1::ExportCheckpointResponse response;
    const CheckpointExporter::Request wanted = {
        .job_id = name.job_id,
        .step = name.step,
        .format = request->format(),
        .weight_type = request->weight_type(),
        .on_progress =
            [&](int64_t done_bytes, int64_t total_bytes) {
              response.mutable_progress()->set_done_bytes(done_bytes);
              response.mutable_progress()->set_total_bytes(total_bytes);
              writer->Write(response);
            },
        .cancelled = [context] { return context->IsCancelled(); }};
    MILLRACE_ASSIGN_OR_RETURN(const StoredCheckpoint::File file, exporter_->Export(wanted));
    response.mutable_file()->set_path(file.path);
    response.mutable_file()->set_size_bytes(file.size_bytes);
    response.mutable_file()->set_sha256(file.sha256);
    writer->Write(response);
    return absl::OkStatus();
  };
  return ToGrpcStatus(make());
}

}  // namespace millrace
