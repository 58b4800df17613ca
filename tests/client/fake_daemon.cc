#include "tests/client/fake_daemon.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "client/lib/sha256.h"
#include "client/lib/watch.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace millrace {
namespace {

constexpr size_t kDownloadChunk = 1000;

grpc::Status Unavailable() { return grpc::Status(grpc::StatusCode::UNAVAILABLE, "stopping"); }

grpc::Status NotFound(const std::string& reason, const std::string& name) {
  return MakeGrpcError(grpc::StatusCode::NOT_FOUND, reason, absl::StrCat(name, " does not exist"));
}

}  // namespace

grpc::Status MakeGrpcError(grpc::StatusCode code, const std::string& reason,
                           const std::string& message,
                           const std::vector<std::pair<std::string, std::string>>& fields,
                           absl::Duration retry) {
  google::rpc::Status status;
  status.set_code(code);
  status.set_message(message);
  google::rpc::ErrorInfo info;
  info.set_reason(reason);
  info.set_domain("millrace");
  status.add_details()->PackFrom(info);
  if (!fields.empty()) {
    google::rpc::BadRequest bad_request;
    for (const auto& [field, description] : fields) {
      auto* violation = bad_request.add_field_violations();
      violation->set_field(field);
      violation->set_description(description);
    }
    status.add_details()->PackFrom(bad_request);
  }
  if (retry > absl::ZeroDuration()) {
    google::rpc::RetryInfo retry_info;
    retry_info.mutable_retry_delay()->set_nanos(
        static_cast<int32_t>(absl::ToInt64Nanoseconds(retry)));
    status.add_details()->PackFrom(retry_info);
  }
  return grpc::Status(code, message, status.SerializeAsString());
}

FakeDaemon::FakeDaemon() {
  job.set_name("jobs/plays");
  Start();
}

FakeDaemon::~FakeDaemon() { Stop(); }

std::string FakeDaemon::address() const { return absl::StrCat("127.0.0.1:", port_); }

void FakeDaemon::Start() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    stopping_ = false;
  }
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(absl::StrCat("127.0.0.1:", port_), grpc::InsecureServerCredentials(),
                           &port);
  builder.RegisterService(static_cast<v1::JobService::Service*>(this));
  builder.RegisterService(static_cast<v1::DatasetService::Service*>(this));
  builder.RegisterService(static_cast<v1::CheckpointService::Service*>(this));
  builder.RegisterService(static_cast<v1::NodeService::Service*>(this));
  server_ = builder.BuildAndStart();
  port_ = port;
}

void FakeDaemon::Stop() {
  if (server_ == nullptr) return;
  {
    std::lock_guard<std::mutex> lock(mutex);
    stopping_ = true;
  }
  changed_.notify_all();
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  server_.reset();
}

void FakeDaemon::Changed() { changed_.notify_all(); }

bool FakeDaemon::WaitForCalls(const std::string& method, int wanted) {
  std::unique_lock<std::mutex> lock(mutex);
  return changed_.wait_for(lock, std::chrono::seconds(10), [&] { return calls[method] >= wanted; });
}

void FakeDaemon::AddEvent(v1::JobEvent event) {
  event.set_sequence(static_cast<int64_t>(events.size()) + 1);
  events.push_back(std::move(event));
  job.set_last_sequence(static_cast<int64_t>(events.size()));
  Changed();
}

grpc::Status FakeDaemon::Enter(const std::string& method) {
  std::lock_guard<std::mutex> lock(mutex);
  ++calls[method];
  changed_.notify_all();
  auto& queue = failures[method];
  if (queue.empty()) return grpc::Status::OK;
  grpc::Status status = queue.front();
  queue.pop_front();
  return status;
}

int FakeDaemon::NextBreak() {
  if (break_stream_after.empty()) return -1;
  int after = break_stream_after.front();
  break_stream_after.pop_front();
  return after;
}

bool FakeDaemon::WaitForChange(std::unique_lock<std::mutex>& lock, grpc::ServerContext* context) {
  // A client that goes away is noticed only by looking.
  changed_.wait_for(lock, std::chrono::milliseconds(20));
  return !stopping_ && !context->IsCancelled();
}

grpc::Status FakeDaemon::CreateJob(grpc::ServerContext*, const v1::CreateJobRequest* request,
                                   v1::Job* response) {
  if (grpc::Status status = Enter("CreateJob"); !status.ok()) return status;
  std::lock_guard<std::mutex> lock(mutex);
  created = *request;
  *response = job;
  *response->mutable_spec() = request->spec();
  if (!request->job_id().empty()) response->set_name(absl::StrCat("jobs/", request->job_id()));
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::PlanJob(grpc::ServerContext*, const v1::PlanJobRequest* request,
                                 v1::PlanJobResponse* response) {
  if (grpc::Status status = Enter("PlanJob"); !status.ok()) return status;
  std::lock_guard<std::mutex> lock(mutex);
  plan_request = *request;
  *response = plan_response;
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::ReadTrace(grpc::ServerContext*, const v1::ReadTraceRequest* request,
                                   grpc::ServerWriter<v1::ReadTraceResponse>* writer) {
  if (grpc::Status status = Enter("ReadTrace"); !status.ok()) return status;
  std::lock_guard<std::mutex> lock(mutex);
  if (trace.data().empty() ||
      (request->first_step() != 0 && request->first_step() != trace.first_step())) {
    return NotFound("TRACE_NOT_FOUND", "the trace");
  }
  trace_offsets.push_back(request->offset());
  int left = NextBreak();
  v1::ReadTraceResponse response = trace;
  response.set_size_bytes(static_cast<int64_t>(trace.data().size()));
  for (size_t offset = static_cast<size_t>(request->offset()); offset < trace.data().size();
       offset += kDownloadChunk) {
    if (left-- == 0) return Unavailable();
    response.set_data(trace.data().substr(offset, kDownloadChunk));
    writer->Write(response);
    response.Clear();
  }
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::GetJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                                v1::Job* response) {
  if (grpc::Status status = Enter("GetJob"); !status.ok()) return status;
  std::lock_guard<std::mutex> lock(mutex);
  if (request->name() != job.name()) return NotFound("JOB_NOT_FOUND", request->name());
  *response = job;
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request,
                                  v1::ListJobsResponse* response) {
  if (grpc::Status status = Enter("ListJobs"); !status.ok()) return status;
  std::lock_guard<std::mutex> lock(mutex);
  // Two a page, whatever is asked for.
  size_t begin = request->page_token().empty() ? 0 : std::stoul(request->page_token());
  size_t end = std::min({listed_jobs.size(), begin + 2, begin + request->page_size()});
  for (size_t i = begin; i < end; ++i) *response->add_jobs() = listed_jobs[i];
  if (end < listed_jobs.size()) response->set_next_page_token(absl::StrCat(end));
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::DeleteJob(grpc::ServerContext*, const v1::DeleteJobRequest*,
                                   google::protobuf::Empty*) {
  return Enter("DeleteJob");
}

grpc::Status FakeDaemon::CancelJob(grpc::ServerContext*, const v1::CancelJobRequest*,
                                   v1::Job* response) {
  if (grpc::Status status = Enter("CancelJob"); !status.ok()) return status;
  std::lock_guard<std::mutex> lock(mutex);
  *response = job;
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::PauseJob(grpc::ServerContext*, const v1::PauseJobRequest*,
                                  v1::Job* response) {
  if (grpc::Status status = Enter("PauseJob"); !status.ok()) return status;
  std::lock_guard<std::mutex> lock(mutex);
  *response = job;
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::ResumeJob(grpc::ServerContext*, const v1::ResumeJobRequest*,
                                   v1::Job* response) {
  if (grpc::Status status = Enter("ResumeJob"); !status.ok()) return status;
  std::lock_guard<std::mutex> lock(mutex);
  *response = job;
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::WatchJob(grpc::ServerContext* context, const v1::WatchJobRequest* request,
                                  grpc::ServerWriter<v1::JobEvent>* writer) {
  if (grpc::Status status = Enter("WatchJob"); !status.ok()) return status;
  std::unique_lock<std::mutex> lock(mutex);
  if (request->name() != job.name()) return NotFound("JOB_NOT_FOUND", request->name());
  int left = NextBreak();
  size_t next = 0;
  while (next < events.size() && events[next].sequence() <= request->after_sequence()) ++next;
  for (;;) {
    for (; next < events.size(); ++next) {
      if (left-- == 0) return Unavailable();
      writer->Write(events[next]);
    }
    if (left == 0) return Unavailable();
    if (HasEnded(job.state())) return grpc::Status::OK;
    if (!WaitForChange(lock, context)) return Unavailable();
  }
}

grpc::Status FakeDaemon::ReadLogs(grpc::ServerContext* context, const v1::ReadLogsRequest* request,
                                  grpc::ServerWriter<v1::ReadLogsResponse>* writer) {
  if (grpc::Status status = Enter("ReadLogs"); !status.ok()) return status;
  std::unique_lock<std::mutex> lock(mutex);
  int attempt = request->attempt() == 0 ? job.attempt() : request->attempt();
  if (logs.count(attempt) == 0) return NotFound("ATTEMPT_NOT_FOUND", absl::StrCat(attempt));
  int left = NextBreak();
  size_t sent = 0;
  if (request->tail_lines() > 0) {
    const std::string& log = logs[attempt];
    sent = log.size();
    for (int i = 0; i <= request->tail_lines() && sent != std::string::npos && sent > 0; ++i) {
      sent = log.rfind('\n', sent - 1);
    }
    sent = sent == std::string::npos ? 0 : sent + 1;
  }
  for (;;) {
    // A line at a time.
    while (sent < logs[attempt].size()) {
      if (left-- == 0) return Unavailable();
      size_t end = logs[attempt].find('\n', sent);
      end = end == std::string::npos ? logs[attempt].size() : end + 1;
      v1::ReadLogsResponse response;
      response.set_data(logs[attempt].substr(sent, end - sent));
      response.set_attempt(attempt);
      writer->Write(response);
      sent = end;
    }
    if (left == 0) return Unavailable();
    if (!request->follow() || log_ended[attempt]) return grpc::Status::OK;
    if (!WaitForChange(lock, context)) return Unavailable();
  }
}

grpc::Status FakeDaemon::CreateDataset(grpc::ServerContext*,
                                       const v1::CreateDatasetRequest* request,
                                       v1::Dataset* response) {
  if (grpc::Status status = Enter("CreateDataset"); !status.ok()) return status;
  std::lock_guard<std::mutex> lock(mutex);
  if (dataset.name().empty()) {
    dataset = request->dataset();
    dataset.set_name(absl::StrCat("datasets/", request->dataset_id()));
    dataset.set_state(v1::Dataset::UPLOADING);
  }
  *response = dataset;
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::UploadDatasetFile(grpc::ServerContext*,
                                           grpc::ServerReader<v1::UploadDatasetFileRequest>* reader,
                                           v1::UploadDatasetFileResponse* response) {
  if (grpc::Status status = Enter("UploadDatasetFile"); !status.ok()) return status;
  v1::UploadDatasetFileRequest message;
  if (!reader->Read(&message)) return Unavailable();
  std::unique_lock<std::mutex> lock(mutex);
  v1::DatasetFile* file = nullptr;
  for (v1::DatasetFile& f : *dataset.mutable_files()) {
    if (f.path() == message.header().path()) file = &f;
  }
  if (file == nullptr) return NotFound("FILE_NOT_FOUND", message.header().path());
  upload_offsets.push_back(message.header().offset());
  if (message.header().offset() != file->committed_bytes()) {
    return MakeGrpcError(grpc::StatusCode::FAILED_PRECONDITION, "OFFSET_MISMATCH", "offset");
  }
  std::string& bytes = dataset_bytes[file->path()];
  size_t left = std::string::npos;
  if (!break_upload_after.empty()) {
    left = break_upload_after.front();
    break_upload_after.pop_front();
  }
  for (;;) {
    lock.unlock();
    bool more = reader->Read(&message);
    lock.lock();
    if (!more) break;
    std::string data = message.data().substr(0, left);
    bytes += data;
    file->set_committed_bytes(static_cast<int64_t>(bytes.size()));
    if (left != std::string::npos && (left -= data.size()) == 0) return Unavailable();
  }
  response->set_committed_bytes(file->committed_bytes());
  Sha256 hash;
  hash.Update(bytes);
  if (file->committed_bytes() == file->size_bytes() && hash.Finish() != file->sha256()) {
    bytes.clear();
    file->set_committed_bytes(0);
    return MakeGrpcError(grpc::StatusCode::DATA_LOSS, "CHECKSUM_MISMATCH", "not the same bytes");
  }
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::FinalizeDataset(grpc::ServerContext*, const v1::FinalizeDatasetRequest*,
                                         v1::Dataset* response) {
  if (grpc::Status status = Enter("FinalizeDataset"); !status.ok()) return status;
  std::lock_guard<std::mutex> lock(mutex);
  dataset.set_state(v1::Dataset::READY);
  dataset.set_document_count(dataset.files_size());
  *response = dataset;
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::GetDataset(grpc::ServerContext*, const v1::GetDatasetRequest* request,
                                    v1::Dataset* response) {
  if (grpc::Status status = Enter("GetDataset"); !status.ok()) return status;
  std::lock_guard<std::mutex> lock(mutex);
  if (request->name() != dataset.name()) return NotFound("DATASET_NOT_FOUND", request->name());
  *response = dataset;
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::ListDatasets(grpc::ServerContext*, const v1::ListDatasetsRequest*,
                                      v1::ListDatasetsResponse* response) {
  if (grpc::Status status = Enter("ListDatasets"); !status.ok()) return status;
  std::lock_guard<std::mutex> lock(mutex);
  if (!dataset.name().empty()) *response->add_datasets() = dataset;
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::ListCheckpoints(grpc::ServerContext*, const v1::ListCheckpointsRequest*,
                                         v1::ListCheckpointsResponse* response) {
  if (grpc::Status status = Enter("ListCheckpoints"); !status.ok()) return status;
  std::lock_guard<std::mutex> lock(mutex);
  for (const v1::Checkpoint& checkpoint : checkpoints) *response->add_checkpoints() = checkpoint;
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::GetCheckpoint(grpc::ServerContext*,
                                       const v1::GetCheckpointRequest* request,
                                       v1::Checkpoint* response) {
  if (grpc::Status status = Enter("GetCheckpoint"); !status.ok()) return status;
  std::lock_guard<std::mutex> lock(mutex);
  for (const v1::Checkpoint& checkpoint : checkpoints) {
    bool latest = &checkpoint == &checkpoints.front() &&
                  request->name() == absl::StrCat(job.name(), "/checkpoints/latest");
    if (latest || checkpoint.name() == request->name()) {
      *response = checkpoint;
      return grpc::Status::OK;
    }
  }
  return NotFound("CHECKPOINT_NOT_FOUND", request->name());
}

grpc::Status FakeDaemon::ListCheckpointFiles(grpc::ServerContext*,
                                             const v1::ListCheckpointFilesRequest*,
                                             v1::ListCheckpointFilesResponse* response) {
  if (grpc::Status status = Enter("ListCheckpointFiles"); !status.ok()) return status;
  std::lock_guard<std::mutex> lock(mutex);
  *response = checkpoint_files;
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::DownloadCheckpointFile(
    grpc::ServerContext*, const v1::DownloadCheckpointFileRequest* request,
    grpc::ServerWriter<v1::DownloadCheckpointFileResponse>* writer) {
  if (grpc::Status status = Enter("DownloadCheckpointFile"); !status.ok()) return status;
  std::lock_guard<std::mutex> lock(mutex);
  download_offsets.push_back(request->offset());
  const std::string& bytes = checkpoint_bytes[request->path()];
  int left = NextBreak();
  for (size_t offset = static_cast<size_t>(request->offset()); offset < bytes.size();
       offset += kDownloadChunk) {
    if (left-- == 0) return Unavailable();
    v1::DownloadCheckpointFileResponse response;
    response.set_data(bytes.substr(offset, kDownloadChunk));
    writer->Write(response);
  }
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::GetNode(grpc::ServerContext*, const v1::GetNodeRequest*,
                                 v1::Node* response) {
  if (grpc::Status status = Enter("GetNode"); !status.ok()) return status;
  std::lock_guard<std::mutex> lock(mutex);
  *response = node;
  return grpc::Status::OK;
}

}  // namespace millrace
