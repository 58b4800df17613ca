// JobService over a JobManager. Each method parses the request, asks the manager and maps the
// error; the streams are in watch_stream.h, log_stream.h and trace_stream.h.
#ifndef MILLRACE_SERVER_RPC_JOB_SERVICE_H_
#define MILLRACE_SERVER_RPC_JOB_SERVICE_H_

#include "millrace/v1/job_service.grpc.pb.h"
#include "server/base/paths.h"
#include "server/jobs/job_manager.h"
#include "server/jobs/job_planner.h"
#include "server/rpc/executor.h"

namespace millrace {

class JobServiceAdapter : public v1::JobService::CallbackService {
 public:
  // All outlive the adapter.
  JobServiceAdapter(DataPaths paths, JobManager* manager, JobPlanner* planner, Executor* executor)
      : paths_(std::move(paths)), manager_(manager), planner_(planner), executor_(executor) {}

  grpc::ServerUnaryReactor* CreateJob(grpc::CallbackServerContext* context,
                                      const v1::CreateJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const v1::GetJobRequest* request, v1::Job* response) override;
  grpc::ServerUnaryReactor* PlanJob(grpc::CallbackServerContext* context,
                                    const v1::PlanJobRequest* request,
                                    v1::PlanJobResponse* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* DeleteJob(grpc::CallbackServerContext* context,
                                      const v1::DeleteJobRequest* request,
                                      google::protobuf::Empty* response) override;
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context,
                                      const v1::CancelJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerUnaryReactor* PauseJob(grpc::CallbackServerContext* context,
                                     const v1::PauseJobRequest* request,
                                     v1::Job* response) override;
  grpc::ServerUnaryReactor* ResumeJob(grpc::CallbackServerContext* context,
                                      const v1::ResumeJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerWriteReactor<v1::JobEvent>* WatchJob(grpc::CallbackServerContext* context,
                                                   const v1::WatchJobRequest* request) override;
  grpc::ServerWriteReactor<v1::ReadLogsResponse>* ReadLogs(
      grpc::CallbackServerContext* context, const v1::ReadLogsRequest* request) override;
  grpc::ServerWriteReactor<v1::ReadTraceResponse>* ReadTrace(
      grpc::CallbackServerContext* context, const v1::ReadTraceRequest* request) override;

 private:
  // Calls `method` of the manager with the job that the request names.
  template <typename Request>
  grpc::ServerUnaryReactor* ChangeJob(
      grpc::CallbackServerContext* context, const Request* request, v1::Job* response,
      absl::StatusOr<v1::Job> (JobManager::*method)(const std::string&));

  const DataPaths paths_;
  JobManager* const manager_;
  JobPlanner* const planner_;
  Executor* const executor_;
  // Its own, so that no watcher waits for a folder that is being deleted.
  Executor watch_executor_{2};
  // Plans take seconds of all cores; one after the other, and nobody else waits for them.
  Executor plan_executor_{1};
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_RPC_JOB_SERVICE_H_
