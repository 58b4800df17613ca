#include "client/lib/trace_download.h"

#include <cstdio>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/lib/errors.h"
#include "client/lib/local_file.h"

namespace millrace {
namespace {

class Download {
 public:
  Download(const std::string& name, int64_t first_step,
           const std::function<std::string(const TraceInfo&)>& path_of)
      : name_(name), first_step_(first_step), path_of_(path_of) {}

  // One stream, from where the last one ended.
  absl::Status Receive(Connection& connection, grpc::ClientContext* context, bool* progress) {
    v1::ReadTraceRequest request;
    request.set_name(name_);
    request.set_first_step(first_step_);
    request.set_offset(offset_);
    auto stream = connection.jobs().ReadTrace(context, request);
    v1::ReadTraceResponse response;
    absl::Status taken;
    while (taken.ok() && stream->Read(&response)) {
      *progress = true;
      taken = Take(response);
    }
    if (!taken.ok()) context->TryCancel();
    absl::Status end = StatusFromGrpc(stream->Finish());
    if (!taken.ok()) return taken;
    if (end.ok() && offset_ < info_.size_bytes) {
      return absl::AbortedError("the daemon ended the trace early");
    }
    return end;
  }

  absl::StatusOr<TraceInfo> Publish() {
    if (!file_.has_value()) return absl::DataLossError("the daemon sent no trace");
    absl::Status synced = file_->Sync();
    if (!synced.ok()) return synced;
    if (rename(Partial().c_str(), info_.path.c_str()) != 0) {
      return FileError("rename to", info_.path);
    }
    return info_;
  }

 private:
  std::string Partial() const { return info_.path + ".partial"; }

  absl::Status Take(const v1::ReadTraceResponse& response) {
    if (!file_.has_value()) {
      info_ = {response.first_step(), response.last_step(), response.size_bytes(), ""};
      first_step_ = info_.first_step;
      info_.path = path_of_(info_);
      absl::Status replaceable = CheckReplaceable(info_.path);
      if (!replaceable.ok()) return replaceable;
      absl::StatusOr<LocalFile> file = LocalFile::OpenForWriting(Partial());
      if (!file.ok()) return file.status();
      file_.emplace(*std::move(file));
      absl::Status truncated = file_->Truncate(0);
      if (!truncated.ok()) return truncated;
    }
    absl::Status written = file_->Write(offset_, response.data());
    offset_ += static_cast<int64_t>(response.data().size());
    return written;
  }

  const std::string name_;
  int64_t first_step_;
  const std::function<std::string(const TraceInfo&)>& path_of_;
  TraceInfo info_;
  std::optional<LocalFile> file_;
  int64_t offset_ = 0;
};

}  // namespace

absl::StatusOr<TraceInfo> DownloadTrace(Connection& connection, const std::string& name,
                                        int64_t first_step,
                                        const std::function<std::string(const TraceInfo&)>& path_of,
                                        const ReconnectCallback& on_reconnect) {
  Download download(name, first_step, path_of);
  absl::Status status =
      ResumeStream(connection, on_reconnect, [&](grpc::ClientContext* context, bool* progress) {
        return download.Receive(connection, context, progress);
      });
  if (!status.ok()) return status;
  return download.Publish();
}

}  // namespace millrace
