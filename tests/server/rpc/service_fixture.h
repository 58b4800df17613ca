// The services on a real loopback server over a job manager with fakes around it, and clients.
#ifndef MILLRACE_TESTS_SERVER_RPC_SERVICE_FIXTURE_H_
#define MILLRACE_TESTS_SERVER_RPC_SERVICE_FIXTURE_H_

#include <grpcpp/create_channel.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "millrace/v1/job_service.grpc.pb.h"
#include "millrace/v1/node_service.grpc.pb.h"
#include "server/observe/metrics.h"
#include "server/rpc/executor.h"
#include "server/rpc/grpc_server.h"
#include "server/rpc/job_service.h"
#include "server/rpc/node_service.h"
#include "server/rpc/rpc_metrics.h"
#include "tests/server/jobs/fakes.h"

namespace millrace {

class ServiceTest : public JobManagerTest {
 protected:
  void SetUp() override {
    JobManagerTest::SetUp();
    StartServer();
  }

  void TearDown() override {
    StopServer();
    JobManagerTest::TearDown();
  }

  void StartServer() {
    job_service_ =
        std::make_unique<JobServiceAdapter>(options_.paths, manager_.get(), &planner_, &executor_);
    node_service_ = std::make_unique<NodeServiceAdapter>(options_.paths.root(), manager_.get());
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> creators;
    creators.push_back(MakeRpcMetrics(&metrics_));
    auto server = GrpcServer::Start({.listen = "127.0.0.1:0"},
                                    {job_service_.get(), node_service_.get()}, std::move(creators));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
    jobs_ = v1::JobService::NewStub(channel_);
    nodes_ = v1::NodeService::NewStub(channel_);
  }

  void StopServer() { server_ = nullptr; }

  static void SetDeadline(grpc::ClientContext* context) {
    context->set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
  }

  static std::string ReasonOfGrpc(const grpc::Status& status) {
    google::rpc::Status wire;
    wire.ParseFromString(status.error_details());
    google::rpc::ErrorInfo info;
    for (const auto& detail : wire.details()) {
      if (detail.UnpackTo(&info)) return info.reason();
    }
    return "";
  }

  std::unique_ptr<grpc::ClientReader<v1::JobEvent>> Watch(grpc::ClientContext* context,
                                                          const std::string& id,
                                                          int64_t after = 0) {
    SetDeadline(context);
    v1::WatchJobRequest request;
    request.set_name("jobs/" + id);
    request.set_after_sequence(after);
    return jobs_->WatchJob(context, request);
  }

  Executor executor_{2};
  FakePlanner planner_;
  Metrics metrics_;
  std::unique_ptr<JobServiceAdapter> job_service_;
  std::unique_ptr<NodeServiceAdapter> node_service_;
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::unique_ptr<v1::NodeService::Stub> nodes_;
};

}  // namespace millrace

#endif  // MILLRACE_TESTS_SERVER_RPC_SERVICE_FIXTURE_H_
