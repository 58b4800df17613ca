#include "client/lib/connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

#include "client/lib/errors.h"
#include "tests/client/fake_daemon.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Connection> Connect(const FakeDaemon& daemon, std::stop_token stop = {}) {
  Connection::Options options;
  options.address = daemon.address();
  options.stop = std::move(stop);
  return *Connection::Open(options);
}

grpc::Status Unavailable() { return grpc::Status(grpc::StatusCode::UNAVAILABLE, "not now"); }

TEST(Connection, TriesAgainWhileTheDaemonIsUnavailable) {
  FakeDaemon daemon;
  daemon.failures["GetJob"] = {Unavailable(), Unavailable()};
  absl::StatusOr<v1::Job> job = Connect(daemon)->GetJob("jobs/plays");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(daemon.calls["GetJob"], 3);
}

TEST(Connection, WaitsAsLongAsTheDaemonAsks) {
  FakeDaemon daemon;
  daemon.failures["GetJob"] = {MakeGrpcError(grpc::StatusCode::UNAVAILABLE, "DRAINING", "draining",
                                             {}, absl::Milliseconds(300))};
  absl::Time start = absl::Now();
  EXPECT_TRUE(Connect(daemon)->GetJob("jobs/plays").ok());
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(300));
}

TEST(Connection, DoesNotRepeatOtherErrors) {
  FakeDaemon daemon;
  daemon.failures["GetJob"] = {grpc::Status(grpc::StatusCode::INTERNAL, "broken")};
  EXPECT_EQ(Connect(daemon)->GetJob("jobs/plays").status(), absl::InternalError("broken"));
  EXPECT_EQ(daemon.calls["GetJob"], 1);
}

TEST(Connection, SaysSoonWhereNobodyAnswersAndWhatToDo) {
  FakeDaemon daemon;
  daemon.Stop();
  absl::Time start = absl::Now();
  absl::Status status = Connect(daemon)->GetJob("jobs/plays").status();
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("no millraced answers at " + daemon.address() +
                        "; start it there (`millraced --data_dir"));
}

TEST(Connection, KeepsTheWordsOfADrainingDaemon) {
  FakeDaemon daemon;
  for (int i = 0; i < 100; ++i) {
    daemon.failures["GetJob"].push_back(
        MakeGrpcError(grpc::StatusCode::UNAVAILABLE, "DRAINING", "the daemon is being stopped"));
  }
  absl::Status status = Connect(daemon)->GetJob("jobs/plays").status();
  EXPECT_EQ(status.message(), "the daemon is being stopped");
  EXPECT_EQ(ErrorReason(status), "DRAINING");
}

TEST(Connection, StopsATryThatGoesOn) {
  FakeDaemon daemon;
  daemon.Stop();
  std::stop_source stop;
  Connection::Options options;
  options.address = daemon.address();
  options.max_unavailable = absl::Hours(1);
  options.stop = stop.get_token();
  std::unique_ptr<Connection> connection = *Connection::Open(options);
  std::thread stopper([&] { stop.request_stop(); });
  EXPECT_EQ(connection->GetJob("jobs/plays").status().code(), absl::StatusCode::kCancelled);
  stopper.join();
}

TEST(Connection, RefusesWhatIsNoAddress) {
  for (const char* address : {"", "7473", "host", ":7473", "host:0", "host:99999", "host:x"}) {
    Connection::Options options;
    options.address = address;
    EXPECT_EQ(Connection::Open(options).status().code(), absl::StatusCode::kInvalidArgument)
        << address;
  }
}

TEST(Errors, ListFieldsAsTheyAreInAJobFile) {
  absl::Status status = StatusFromGrpc(
      MakeGrpcError(grpc::StatusCode::INVALID_ARGUMENT, "CONFIG_INVALID", "2 problems",
                    {{"spec.train.steps", "0 is too few; give at least 1"},
                     {"spec.memory.device_budget_bytes", "1 is too little"},
                     {"job_id", "job_id: is too long"},
                     {"", "and 3 more"}}));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "train.steps: 0 is too few; give at least 1\n"
            "memory.device_budget: 1 is too little\n"
            "job_id: is too long\n"
            "and 3 more");
  EXPECT_EQ(ErrorReason(status), "CONFIG_INVALID");
}

TEST(Errors, SurviveDetailsThatCannotBeRead) {
  absl::Status status =
      StatusFromGrpc(grpc::Status(grpc::StatusCode::NOT_FOUND, "gone", "\xff\xff"));
  EXPECT_EQ(status, absl::NotFoundError("gone"));
  EXPECT_EQ(ErrorReason(status), "");
  EXPECT_FALSE(RetryDelay(status).has_value());
}

}  // namespace
}  // namespace millrace
