#include "server/rpc/trace_stream.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "engine/base/status_macros.h"
#include "server/base/resource_names.h"
#include "server/jobs/job_traces.h"
#include "server/rpc/status_to_grpc.h"

namespace millrace {
namespace {

class TraceStream : public grpc::ServerWriteReactor<v1::ReadTraceResponse> {
 public:
  TraceStream(const DataPaths& paths, JobManager* manager, const v1::ReadTraceRequest& request) {
    if (absl::Status status = Begin(paths, manager, request); !status.ok()) {
      Finish(ToGrpcStatus(status));
    } else {
      StartWrite(&response_);
    }
  }

  void OnWriteDone(bool ok) override {
    absl::Status status = absl::CancelledError("the reader is gone");
    if (ok) {
      response_.Clear();
      status = reader_->Read(response_.mutable_data());
      if (status.ok() && !response_.data().empty()) {
        StartWrite(&response_);
        return;
      }
    }
    Finish(ToGrpcStatus(status));
  }

  void OnDone() override { delete this; }

 private:
  absl::Status Begin(const DataPaths& paths, JobManager* manager,
                     const v1::ReadTraceRequest& request) {
    MILLRACE_ASSIGN_OR_RETURN(const std::string job_id, ParseJobName("name", request.name()));
    MILLRACE_RETURN_IF_ERROR(manager->GetJob(job_id).status());
    MILLRACE_ASSIGN_OR_RETURN(
        reader_, TraceReader::Open(paths, job_id, request.first_step(), request.offset()));
    response_.set_first_step(reader_->first_step());
    response_.set_last_step(reader_->last_step());
    response_.set_size_bytes(reader_->size_bytes());
    return reader_->Read(response_.mutable_data());
  }

  std::optional<TraceReader> reader_;
  v1::ReadTraceResponse response_;
};

}  // namespace

grpc::ServerWriteReactor<v1::ReadTraceResponse>* StartTraceStream(
    const DataPaths& paths, JobManager* manager, const v1::ReadTraceRequest& request) {
  return new TraceStream(paths, manager, request);
}

}  // namespace millrace
