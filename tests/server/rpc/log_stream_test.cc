#include "server/rpc/log_stream.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/server/rpc/service_fixture.h"

namespace millrace {
namespace {

class LogStreamTest : public ServiceTest {
 protected:
  std::ofstream OpenLog(const std::string& id, int32_t attempt) {
    std::filesystem::create_directories(options_.paths.Attempt(id, attempt));
    return std::ofstream(options_.paths.AttemptLog(id, attempt), std::ios::app);
  }

  std::unique_ptr<grpc::ClientReader<v1::ReadLogsResponse>> Read(grpc::ClientContext* context,
                                                                 const std::string& id,
                                                                 bool follow = false,
                                                                 int32_t tail_lines = 0,
                                                                 int32_t attempt = 0) {
    SetDeadline(context);
    v1::ReadLogsRequest request;
    request.set_name("jobs/" + id);
    request.set_follow(follow);
    request.set_tail_lines(tail_lines);
    request.set_attempt(attempt);
    return jobs_->ReadLogs(context, request);
  }

  static std::string ReadAll(grpc::ClientReader<v1::ReadLogsResponse>* reader) {
    std::string all;
    v1::ReadLogsResponse response;
    while (reader->Read(&response)) all += response.data();
    const grpc::Status status = reader->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return all;
  }

  std::string LogOf(const std::string& id, int32_t tail_lines = 0, int32_t attempt = 0) {
    grpc::ClientContext context;
    return ReadAll(Read(&context, id, false, tail_lines, attempt).get());
  }
};

TEST_F(LogStreamTest, ReadsWhatIsThereAndEnds) {
  CreateRunningJob("a");
  OpenLog("a", 1) << "one\ntwo\nthree without newline";
  EXPECT_EQ(LogOf("a"), "one\ntwo\nthree without newline");
  EXPECT_EQ(LogOf("a", 1), "three without newline");
  EXPECT_EQ(LogOf("a", 2), "two\nthree without newline");
  EXPECT_EQ(LogOf("a", 100), "one\ntwo\nthree without newline");
  OpenLog("a", 1) << "\nfour\n";
  EXPECT_EQ(LogOf("a", 1), "four\n");
}

TEST_F(LogStreamTest, FollowsUntilTheAttemptHasEndedAndLosesNoTail) {
  CreateRunningJob("a");
  std::ofstream log = OpenLog("a", 1);
  log << "one\n" << std::flush;
  grpc::ClientContext context;
  auto reader = Read(&context, "a", true);
  v1::ReadLogsResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.data(), "one\n");
  EXPECT_EQ(response.attempt(), 1);
  log << "two\n" << std::flush;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.data(), "two\n");
  log << "last words" << std::flush;
  Exit("a", 1);
  EXPECT_EQ(ReadAll(reader.get()), "last words");
}

TEST_F(LogStreamTest, FollowWaitsForTheFirstAttempt) {
  CreateRunningJob("a");
  CreateJob("b");
  grpc::ClientContext context;
  auto reader = Read(&context, "b", true);
  ASSERT_TRUE(manager_->CancelJob("a").ok());
  Exit("a", 1);
  ASSERT_TRUE(launcher_->WaitForStart("b", 1));
  OpenLog("b", 1) << "hello\n";
  v1::ReadLogsResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.data(), "hello\n");
  ASSERT_TRUE(manager_->CancelJob("b").ok());
  Exit("b", 1);
  EXPECT_EQ(ReadAll(reader.get()), "");
}

TEST_F(LogStreamTest, EachAttemptHasItsOwnLog) {
  CreateRunningJob("a");
  OpenLog("a", 1) << "first\n";
  Exit("a", 1);
  ASSERT_TRUE(launcher_->WaitForStart("a", 2));
  OpenLog("a", 2) << "second\n";
  EXPECT_EQ(LogOf("a"), "second\n");
  EXPECT_EQ(LogOf("a", 0, 1), "first\n");
  grpc::ClientContext context;
  auto reader = Read(&context, "a", false, 0, 7);
  v1::ReadLogsResponse response;
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(ReasonOfGrpc(reader->Finish()), "ATTEMPT_NOT_FOUND");
}

TEST_F(LogStreamTest, AFloodOfLinesComesWholeAndInOrder) {
  CreateRunningJob("a");
  std::string flood;
  for (int i = 0; i < 200000; ++i) absl::StrAppend(&flood, "line ", i, "\n");
  // Longer than what is read at once.
  flood += std::string(1 << 20, 'x') + "\n";
  OpenLog("a", 1) << flood;
  EXPECT_EQ(LogOf("a"), flood);
  EXPECT_EQ(LogOf("a", 2), "line 199999\n" + std::string(1 << 20, 'x') + "\n");
}

TEST_F(LogStreamTest, AReaderThatLeavesWhileNothingComesIsLetGo) {
  CreateRunningJob("a");
  OpenLog("a", 1) << "one\n";
  grpc::ClientContext context;
  auto reader = Read(&context, "a", true);
  v1::ReadLogsResponse response;
  ASSERT_TRUE(reader->Read(&response));
  context.TryCancel();
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  // The server can only end once every stream has.
  StopServer();
}

TEST_F(LogStreamTest, NegativeNumbersAreRefusedByName) {
  CreateJob("a");
  grpc::ClientContext context;
  auto reader = Read(&context, "a", false, -1);
  v1::ReadLogsResponse response;
  EXPECT_FALSE(reader->Read(&response));
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(ReasonOfGrpc(status), "REQUEST_INVALID");
  EXPECT_NE(status.error_message().find("tail_lines"), std::string::npos);
}

}  // namespace
}  // namespace millrace
