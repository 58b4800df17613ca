// The libraries of the system, together in one program: they compile as C++20, link, and agree on
// what they exchange (string_view above all).

#include <civetweb.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <gtest/gtest.h>
#include <hwy/highway.h>
#include <openssl/sha.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <spdlog/spdlog.h>
#include <sqlite3.h>
#include <yaml-cpp/yaml.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <dnnl.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace {

absl::StatusOr<int> ParsePort(absl::string_view text) {
  int port = 0;
  if (!absl::SimpleAtoi(text, &port)) {
    return absl::InvalidArgumentError(absl::StrCat("port: ", text, " is not a number"));
  }
  return port;
}

TEST(ToolchainTest, StatusOrAndContainersWork) {
  EXPECT_EQ(*ParsePort("7077"), 7077);
  EXPECT_EQ(ParsePort("x").status().message(), "port: x is not a number");
  absl::flat_hash_map<std::string, int> ports = {{"grpc", 7077}};
  EXPECT_EQ(ports.at("grpc"), 7077);
  EXPECT_EQ(absl::StrFormat("%08.3f", 3.14159), "0003.142");
}

TEST(ToolchainTest, ErrorInfoSurvivesTheTripInAStatus) {
  google::rpc::ErrorInfo info;
  info.set_reason("JOB_NOT_FOUND");
  (*info.mutable_metadata())["job"] = "jobs/one";
  google::rpc::Status status;
  status.set_code(grpc::StatusCode::NOT_FOUND);
  status.add_details()->PackFrom(info);
  EXPECT_EQ(status.details(0).type_url(), "type.googleapis.com/google.rpc.ErrorInfo");

  google::rpc::Status received;
  ASSERT_TRUE(received.ParseFromString(status.SerializeAsString()));
  google::rpc::ErrorInfo unpacked;
  ASSERT_TRUE(received.details(0).UnpackTo(&unpacked));
  EXPECT_EQ(unpacked.reason(), "JOB_NOT_FOUND");
  EXPECT_EQ(unpacked.metadata().at("job"), "jobs/one");
}

TEST(ToolchainTest, GrpcServesOnLoopbackInsideTheSandbox) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  ASSERT_GT(port, 0);
  auto channel =
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials());
  EXPECT_TRUE(
      channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(10)));
  server->Shutdown();
}

TEST(ToolchainTest, EveryOtherLibraryAnswers) {
  EXPECT_NE(sqlite3_threadsafe(), 0);
  EXPECT_EQ(YAML::Load("{steps: 3}")["steps"].as<int>(), 3);
  EXPECT_EQ(nlohmann::json::parse(R"({"steps":3})")["steps"], 3);
  EXPECT_GE(dnnl::engine::get_count(dnnl::engine::kind::cpu), 1u);
  EXPECT_NE(hwy::SupportedTargets(), 0);
  EXPECT_NE(mg_version(), nullptr);
  unsigned char digest[SHA256_DIGEST_LENGTH];
  EXPECT_NE(SHA256(reinterpret_cast<const unsigned char*>(""), 0, digest), nullptr);
  EXPECT_TRUE(prometheus::TextSerializer().Serialize(prometheus::Registry().Collect()).empty());
  spdlog::debug("logging links");
  CLI::App app;
  EXPECT_NO_THROW(app.parse(""));
}

}  // namespace
