// A daemon of a few hundred lines for the client's tests: real gRPC on a loopback port, state in
// memory, and faults on demand. It can be stopped and started again on the same port.
#ifndef MILLRACE_TESTS_CLIENT_FAKE_DAEMON_H_
#define MILLRACE_TESTS_CLIENT_FAKE_DAEMON_H_

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/v1/checkpoint_service.grpc.pb.h"
#include "millrace/v1/dataset_service.grpc.pb.h"
#include "millrace/v1/job_service.grpc.pb.h"
#include "millrace/v1/node_service.grpc.pb.h"

namespace millrace {

// A status with google.rpc details, as the daemon makes them.
grpc::Status MakeGrpcError(grpc::StatusCode code, const std::string& reason,
                           const std::string& message,
                           const std::vector<std::pair<std::string, std::string>>& fields = {},
                           absl::Duration retry = absl::ZeroDuration());

class FakeDaemon final : public v1::JobService::Service,
                         public v1::DatasetService::Service,
                         public v1::CheckpointService::Service,
                         public v1::NodeService::Service {
 public:
  FakeDaemon();
  ~FakeDaemon() override;

  std::string address() const;
  void Start();
  // Breaks every call in progress.
  void Stop();

  // Everything below may be read and changed under this lock; Changed() wakes the streams.
  std::mutex mutex;
  void Changed();
  // Waits until `method` was called `calls` times in all; false after ten seconds.
  bool WaitForCalls(const std::string& method, int calls);

  // The next calls of a method end with these, in order, before anything else happens.
  std::map<std::string, std::deque<grpc::Status>> failures;
  std::map<std::string, int> calls;

  v1::Job job;
  std::vector<v1::JobEvent> events;
  // Adds an event with the next sequence.
  void AddEvent(v1::JobEvent event);
  // Streams of the next calls end with UNAVAILABLE after that many messages.
  std::deque<int> break_stream_after;

  // By attempt, from 1.
  std::map<int, std::string> logs;
  std::map<int, bool> log_ended;

  v1::CreateJobRequest created;
  v1::PlanJobRequest plan_request;
  v1::PlanJobResponse plan_response;
  // The one trace: its first message's head, and its bytes.
  v1::ReadTraceResponse trace;
  std::vector<int64_t> trace_offsets;
  v1::Node node;
  std::vector<v1::Job> listed_jobs;

  v1::Dataset dataset;
  std::map<std::string, std::string> dataset_bytes;
  std::vector<int64_t> upload_offsets;
  // Of the next bytes that come, so many are kept before the stream breaks.
  std::deque<size_t> break_upload_after;

  std::vector<v1::Checkpoint> checkpoints;
  v1::ListCheckpointFilesResponse checkpoint_files;
  std::map<std::string, std::string> checkpoint_bytes;
  std::vector<int64_t> download_offsets;

 private:
  grpc::Status Enter(const std::string& method);

  grpc::Status CreateJob(grpc::ServerContext*, const v1::CreateJobRequest* request,
                         v1::Job* response) override;
  grpc::Status PlanJob(grpc::ServerContext*, const v1::PlanJobRequest* request,
                       v1::PlanJobResponse* response) override;
  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                      v1::Job* response) override;
  grpc::Status ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override;
  grpc::Status DeleteJob(grpc::ServerContext*, const v1::DeleteJobRequest* request,
                         google::protobuf::Empty*) override;
  grpc::Status CancelJob(grpc::ServerContext*, const v1::CancelJobRequest* request,
                         v1::Job* response) override;
  grpc::Status PauseJob(grpc::ServerContext*, const v1::PauseJobRequest* request,
                        v1::Job* response) override;
  grpc::Status ResumeJob(grpc::ServerContext*, const v1::ResumeJobRequest* request,
                         v1::Job* response) override;
  grpc::Status WatchJob(grpc::ServerContext* context, const v1::WatchJobRequest* request,
                        grpc::ServerWriter<v1::JobEvent>* writer) override;
  grpc::Status ReadLogs(grpc::ServerContext* context, const v1::ReadLogsRequest* request,
                        grpc::ServerWriter<v1::ReadLogsResponse>* writer) override;
  grpc::Status ReadTrace(grpc::ServerContext*, const v1::ReadTraceRequest* request,
                         grpc::ServerWriter<v1::ReadTraceResponse>* writer) override;

  grpc::Status CreateDataset(grpc::ServerContext*, const v1::CreateDatasetRequest* request,
                             v1::Dataset* response) override;
  grpc::Status UploadDatasetFile(grpc::ServerContext*,
                                 grpc::ServerReader<v1::UploadDatasetFileRequest>* reader,
                                 v1::UploadDatasetFileResponse* response) override;
  grpc::Status FinalizeDataset(grpc::ServerContext*, const v1::FinalizeDatasetRequest* request,
                               v1::Dataset* response) override;
  grpc::Status GetDataset(grpc::ServerContext*, const v1::GetDatasetRequest* request,
                          v1::Dataset* response) override;
  grpc::Status ListDatasets(grpc::ServerContext*, const v1::ListDatasetsRequest* request,
                            v1::ListDatasetsResponse* response) override;

  grpc::Status ListCheckpoints(grpc::ServerContext*, const v1::ListCheckpointsRequest* request,
                               v1::ListCheckpointsResponse* response) override;
  grpc::Status GetCheckpoint(grpc::ServerContext*, const v1::GetCheckpointRequest* request,
                             v1::Checkpoint* response) override;
  grpc::Status ListCheckpointFiles(grpc::ServerContext*,
                                   const v1::ListCheckpointFilesRequest* request,
                                   v1::ListCheckpointFilesResponse* response) override;
  grpc::Status DownloadCheckpointFile(
      grpc::ServerContext*, const v1::DownloadCheckpointFileRequest* request,
      grpc::ServerWriter<v1::DownloadCheckpointFileResponse>* writer) override;

  grpc::Status GetNode(grpc::ServerContext*, const v1::GetNodeRequest* request,
                       v1::Node* response) override;

  // -1 when streams are not to be broken.
  int NextBreak();
  // Waits for a change; false when the daemon stops or the client has gone.
  bool WaitForChange(std::unique_lock<std::mutex>& lock, grpc::ServerContext* context);

  std::condition_variable changed_;
  bool stopping_ = false;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace millrace

#endif  // MILLRACE_TESTS_CLIENT_FAKE_DAEMON_H_
