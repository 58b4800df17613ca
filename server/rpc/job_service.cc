#include "server/rpc/job_service.h"

#include <string>

#include "engine/base/status_macros.h"
#include "server/base/resource_names.h"
#include "server/rpc/log_stream.h"
#include "server/rpc/trace_stream.h"
#include "server/rpc/unary.h"
#include "server/rpc/watch_stream.h"

namespace millrace {

grpc::ServerUnaryReactor* JobServiceAdapter::CreateJob(grpc::CallbackServerContext* context,
                                                       const v1::CreateJobRequest* request,
                                                       v1::Job* response) {
  return FinishUnaryOn(executor_, context, [this, request, response]() -> absl::Status {
    MILLRACE_ASSIGN_OR_RETURN(*response, manager_->CreateJob(*request));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* JobServiceAdapter::GetJob(grpc::CallbackServerContext* context,
                                                    const v1::GetJobRequest* request,
                                                    v1::Job* response) {
  return FinishUnary(context, [&]() -> absl::Status {
    MILLRACE_ASSIGN_OR_RETURN(const std::string id, ParseJobName("name", request->name()));
    MILLRACE_ASSIGN_OR_RETURN(*response, manager_->GetJob(id));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* JobServiceAdapter::PlanJob(grpc::CallbackServerContext* context,
                                                     const v1::PlanJobRequest* request,
                                                     v1::PlanJobResponse* response) {
  return FinishUnaryOn(&plan_executor_, context, [this, request, response]() -> absl::Status {
    MILLRACE_ASSIGN_OR_RETURN(*response, planner_->Plan(*request));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* JobServiceAdapter::ListJobs(grpc::CallbackServerContext* context,
                                                      const v1::ListJobsRequest* request,
                                                      v1::ListJobsResponse* response) {
  return FinishUnary(context, [&]() -> absl::Status {
    MILLRACE_ASSIGN_OR_RETURN(*response, manager_->ListJobs(*request));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* JobServiceAdapter::DeleteJob(grpc::CallbackServerContext* context,
                                                       const v1::DeleteJobRequest* request,
                                                       google::protobuf::Empty* response) {
  return FinishUnaryOn(executor_, context, [this, request]() -> absl::Status {
    MILLRACE_ASSIGN_OR_RETURN(const std::string id, ParseJobName("name", request->name()));
    return manager_->DeleteJob(id);
  });
}

template <typename Request>
grpc::ServerUnaryReactor* JobServiceAdapter::ChangeJob(
    grpc::CallbackServerContext* context, const Request* request, v1::Job* response,
    absl::StatusOr<v1::Job> (JobManager::*method)(const std::string&)) {
  return FinishUnaryOn(executor_, context, [this, request, response, method]() -> absl::Status {
    MILLRACE_ASSIGN_OR_RETURN(const std::string id, ParseJobName("name", request->name()));
    MILLRACE_ASSIGN_OR_RETURN(*response, (manager_->*method)(id));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* JobServiceAdapter::CancelJob(grpc::CallbackServerContext* context,
                                                       const v1::CancelJobRequest* request,
                                                       v1::Job* response) {
  return ChangeJob(context, request, response, &JobManager::CancelJob);
}

grpc::ServerUnaryReactor* JobServiceAdapter::PauseJob(grpc::CallbackServerContext* context,
                                                      const v1::PauseJobRequest* request,
                                                      v1::Job* response) {
  return ChangeJob(context, request, response, &JobManager::PauseJob);
}

grpc::ServerUnaryReactor* JobServiceAdapter::ResumeJob(grpc::CallbackServerContext* context,
                                                       const v1::ResumeJobRequest* request,
                                                       v1::Job* response) {
  return ChangeJob(context, request, response, &JobManager::ResumeJob);
}

grpc::ServerWriteReactor<v1::JobEvent>* JobServiceAdapter::WatchJob(
    grpc::CallbackServerContext* context, const v1::WatchJobRequest* request) {
  return StartWatchStream(manager_, &watch_executor_, *request);
}

grpc::ServerWriteReactor<v1::ReadLogsResponse>* JobServiceAdapter::ReadLogs(
    grpc::CallbackServerContext* context, const v1::ReadLogsRequest* request) {
  return StartLogStream(paths_, manager_, *request);
}

grpc::ServerWriteReactor<v1::ReadTraceResponse>* JobServiceAdapter::ReadTrace(
    grpc::CallbackServerContext* context, const v1::ReadTraceRequest* request) {
  return StartTraceStream(paths_, manager_, *request);
}

}  // namespace millrace
