#include "server/rpc/job_service.h"

#include <grpcpp/support/status.h>
#include <gtest/gtest.h>

#include "tests/server/rpc/service_fixture.h"

namespace millrace {
namespace {

using v1::Job;
using Ended = v1::WorkerReport::Ended;

class JobServiceTest : public ServiceTest {};

TEST_F(JobServiceTest, ServesTheLifeOfAJob) {
  grpc::ClientContext create;
  SetDeadline(&create);
  Job job;
  ASSERT_TRUE(jobs_->CreateJob(&create, MakeCreateRequest("a"), &job).ok());
  EXPECT_EQ(job.name(), "jobs/a");
  ASSERT_TRUE(launcher_->WaitForStart("a", 1));
  ASSERT_TRUE(Report("a", 1, {PreparedReport(1)}).ok());

  grpc::ClientContext pause;
  v1::PauseJobRequest pause_request;
  pause_request.set_name("jobs/a");
  ASSERT_TRUE(jobs_->PauseJob(&pause, pause_request, &job).ok());
  EXPECT_EQ(job.state(), Job::PAUSING);
  ASSERT_TRUE(Report("a", 1, {EndedReport(2, Ended::STOPPED)}).ok());
  Exit("a", 1);

  grpc::ClientContext resume;
  v1::ResumeJobRequest resume_request;
  resume_request.set_name("jobs/a");
  ASSERT_TRUE(jobs_->ResumeJob(&resume, resume_request, &job).ok());
  ASSERT_TRUE(launcher_->WaitForStart("a", 2));

  grpc::ClientContext cancel;
  v1::CancelJobRequest cancel_request;
  cancel_request.set_name("jobs/a");
  ASSERT_TRUE(jobs_->CancelJob(&cancel, cancel_request, &job).ok());
  EXPECT_EQ(job.state(), Job::CANCELLING);
  Exit("a", 2);

  grpc::ClientContext get;
  v1::GetJobRequest get_request;
  get_request.set_name("jobs/a");
  ASSERT_TRUE(jobs_->GetJob(&get, get_request, &job).ok());
  EXPECT_EQ(job.state(), Job::CANCELLED);

  grpc::ClientContext list;
  v1::ListJobsResponse listed;
  ASSERT_TRUE(jobs_->ListJobs(&list, {}, &listed).ok());
  EXPECT_EQ(listed.jobs_size(), 1);

  grpc::ClientContext remove;
  v1::DeleteJobRequest remove_request;
  remove_request.set_name("jobs/a");
  google::protobuf::Empty empty;
  ASSERT_TRUE(jobs_->DeleteJob(&remove, remove_request, &empty).ok());
  grpc::ClientContext again;
  EXPECT_EQ(jobs_->GetJob(&again, get_request, &job).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(JobServiceTest, PlansAJobAndTellsAnUnknownProfile) {
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::PlanJobRequest request;
  *request.mutable_spec() = MakeCreateRequest("a").spec();
  request.set_device("h200");
  v1::PlanJobResponse response;
  ASSERT_TRUE(jobs_->PlanJob(&context, request, &response).ok());
  EXPECT_TRUE(response.plan().fits());
  EXPECT_EQ(response.plan().device(), "h200");
  EXPECT_EQ(planner_.request().spec().name(), "plays");

  request.set_trace(true);
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(64 << 20);
  auto stub = v1::JobService::NewStub(
      grpc::CreateCustomChannel(server_->address(), grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext with_trace;
  ASSERT_TRUE(stub->PlanJob(&with_trace, request, &response).ok());
  EXPECT_EQ(response.trace().size(), size_t{5} << 20) << "more than other messages may have";

  planner_.set_error(MakeFieldError(ErrorReason::kProfileUnknown, {{"device", "is unknown"}}));
  grpc::ClientContext again;
  const grpc::Status unknown = jobs_->PlanJob(&again, request, &response);
  EXPECT_EQ(unknown.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ReasonOfGrpc(unknown), "PROFILE_UNKNOWN");
}

TEST_F(JobServiceTest, ErrorsArriveWithCodeReasonAndFields) {
  validator_.set_error(MakeFieldError(ErrorReason::kConfigInvalid,
                                      {{"spec.train.steps", "0 is too few; give at least 1"}}));
  grpc::ClientContext create;
  Job job;
  const grpc::Status invalid = jobs_->CreateJob(&create, MakeCreateRequest("a"), &job);
  EXPECT_EQ(invalid.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(invalid.error_message(), "spec.train.steps: 0 is too few; give at least 1");
  EXPECT_EQ(ReasonOfGrpc(invalid), "CONFIG_INVALID");

  grpc::ClientContext get;
  v1::GetJobRequest bad_name;
  bad_name.set_name("job/a");
  EXPECT_EQ(ReasonOfGrpc(jobs_->GetJob(&get, bad_name, &job)), "REQUEST_INVALID");
}

TEST_F(JobServiceTest, DrainingIsUnavailableWithARetryDelay) {
  manager_->BeginDrain();
  grpc::ClientContext create;
  Job job;
  const grpc::Status status = jobs_->CreateJob(&create, MakeCreateRequest("a"), &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ReasonOfGrpc(status), "DRAINING");
  EXPECT_NE(status.error_details().find("google.rpc.RetryInfo"), std::string::npos);
}

TEST_F(JobServiceTest, DescribesTheNode) {
  CreateRunningJob("a");
  CreateJob("b");
  grpc::ClientContext context;
  v1::Node node;
  ASSERT_TRUE(nodes_->GetNode(&context, {}, &node).ok());
  EXPECT_FALSE(node.hostname().empty());
  EXPECT_GE(node.cores(), 1);
  EXPECT_GT(node.memory_total_bytes(), node.memory_available_bytes());
  EXPECT_GT(node.storage_free_bytes(), 0);
  ASSERT_EQ(node.devices_size(), 1);
  EXPECT_EQ(node.devices(0).job(), "jobs/a");
  EXPECT_EQ(node.running_jobs(), 1);
  EXPECT_EQ(node.queued_jobs(), 1);
  EXPECT_TRUE(node.library_versions().contains("grpc"));
}

TEST_F(JobServiceTest, CallsAreCountedByMethodAndCode) {
  for (int i = 0; i < 3; ++i) {
    grpc::ClientContext context;
    v1::GetJobRequest request;
    request.set_name("jobs/nobody");
    Job job;
    EXPECT_FALSE(jobs_->GetJob(&context, request, &job).ok());
  }
  // The last is counted before its status is sent.
  EXPECT_NE(metrics_.Serialize().find("grpc_server_handled_total{grpc_code=\"NOT_FOUND\",grpc_"
                                      "method=\"GetJob\",grpc_service=\"millrace.v1.JobService\"} "
                                      "3"),
            std::string::npos)
      << metrics_.Serialize();
}

TEST_F(JobServiceTest, SecondServerOnTheSamePortIsRefusedWithTheCause) {
  const auto second = GrpcServer::Start({.listen = server_->address()}, {}, {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(second.status().message().find("address in use"), absl::string_view::npos)
      << second.status();
}

TEST_F(JobServiceTest, NamesAllJobsThatRunOnTheDevice) {
  StopServer();
  StopManager();
  options_.max_running_jobs = 2;
  StartManager();
  StartServer();
  for (const char* id : {"a", "b"}) {
    CreateJob(id);
    ASSERT_TRUE(launcher_->WaitForStart(id, 1));
  }
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::Node node;
  ASSERT_TRUE(nodes_->GetNode(&context, {}, &node).ok());
  EXPECT_EQ(node.devices(0).job(), "jobs/a, jobs/b");
  EXPECT_TRUE(node.library_versions().contains("onednn"));
}

}  // namespace
}  // namespace millrace
