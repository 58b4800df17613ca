#include "server/rpc/watch_stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/server/rpc/service_fixture.h"

namespace millrace {
namespace {

using Ended = v1::WorkerReport::Ended;

class WatchStreamTest : public ServiceTest {};

TEST_F(WatchStreamTest, SendsEverythingThenEndsWithTheJob) {
  CreateRunningJob("a");
  grpc::ClientContext context;
  auto reader = Watch(&context, "a");
  std::thread worker([this] {
    for (int64_t i = 3; i <= 60; ++i) ASSERT_TRUE(Report("a", 1, {StepReport(i, i - 1)}).ok());
    ASSERT_TRUE(Report("a", 1, {EndedReport(61, Ended::SUCCEEDED)}).ok());
    Exit("a", 1);
  });
  v1::JobEvent event;
  int64_t expected = 1;
  while (reader->Read(&event)) EXPECT_EQ(event.sequence(), expected++);
  worker.join();
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(event.state_change().to(), v1::Job::SUCCEEDED);
  EXPECT_EQ(expected - 1, Get("a").last_sequence());
}

TEST_F(WatchStreamTest, ReconnectingAfterARestartMissesNothingAndRepeatsNothing) {
  CreateRunningJob("a");
  std::vector<int64_t> seen;
  v1::JobEvent event;
  {
    grpc::ClientContext context;
    auto reader = Watch(&context, "a");
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(reader->Read(&event));
      seen.push_back(event.sequence());
    }
    // The daemon goes; the worker does not.
    StopServer();
    while (reader->Read(&event)) seen.push_back(event.sequence());
    EXPECT_FALSE(reader->Finish().ok());
  }
  StopManager();
  alive_at_start_ = {"a"};
  StartManager();
  StartServer();
  ASSERT_TRUE(Report("a", 1, {StepReport(3, 2), EndedReport(4, Ended::SUCCEEDED)}).ok());
  Exit("a", 1);
  grpc::ClientContext context;
  auto reader = Watch(&context, "a", seen.back());
  while (reader->Read(&event)) seen.push_back(event.sequence());
  EXPECT_TRUE(reader->Finish().ok());
  ASSERT_EQ(static_cast<int64_t>(seen.size()), Get("a").last_sequence());
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], static_cast<int64_t>(i) + 1);
}

TEST_F(WatchStreamTest, ASlowWatcherHoldsUpNobody) {
  CreateRunningJob("a");
  // Never reads, so that its stream fills up.
  grpc::ClientContext slow_context;
  auto slow = Watch(&slow_context, "a");
  std::vector<v1::WorkerReport> reports;
  for (int64_t i = 3; i < 2003; ++i) {
    v1::WorkerReport report;
    report.set_sequence(i);
    report.mutable_sample()->set_text(std::string(1000, 'x'));
    reports.push_back(report);
  }
  ASSERT_TRUE(Report("a", 1, reports).ok());
  ASSERT_TRUE(manager_->CancelJob("a").ok());
  Exit("a", 1);
  grpc::ClientContext context;
  auto reader = Watch(&context, "a");
  v1::JobEvent event;
  int64_t count = 0;
  while (reader->Read(&event)) ++count;
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_GT(count, 2000);
  slow_context.TryCancel();
  EXPECT_EQ(slow->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(WatchStreamTest, EventsArriveSoonAfterTheyWereReported) {
  CreateRunningJob("a");
  grpc::ClientContext context;
  auto reader = Watch(&context, "a");
  v1::JobEvent event;
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(reader->Read(&event));
  std::vector<absl::Duration> delays;
  for (int64_t i = 3; i < 43; ++i) {
    const absl::Time start = absl::Now();
    manager_->ApplyReports("a", 1, {StepReport(i, i - 1)}, [](absl::StatusOr<int64_t>) {});
    ASSERT_TRUE(reader->Read(&event));
    delays.push_back(absl::Now() - start);
  }
  std::sort(delays.begin(), delays.end());
  // The median, for the machine may be busy.
  EXPECT_LT(delays[delays.size() / 2], absl::Milliseconds(50));
}

TEST_F(WatchStreamTest, WatchingADeletedOrUnknownJobIsNotFound) {
  CreateJob("a");
  ASSERT_TRUE(launcher_->WaitForStart("a", 1));
  grpc::ClientContext context;
  auto unknown = Watch(&context, "nobody");
  v1::JobEvent event;
  EXPECT_FALSE(unknown->Read(&event));
  EXPECT_EQ(ReasonOfGrpc(unknown->Finish()), "JOB_NOT_FOUND");

  grpc::ClientContext ahead_context;
  auto ahead = Watch(&ahead_context, "a", 1000);
  EXPECT_FALSE(ahead->Read(&event));
  EXPECT_EQ(ReasonOfGrpc(ahead->Finish()), "REQUEST_INVALID");
}

TEST_F(WatchStreamTest, AWatcherThatLeavesIsForgotten) {
  CreateRunningJob("a");
  grpc::ClientContext context;
  auto reader = Watch(&context, "a");
  v1::JobEvent event;
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_EQ(manager_->watcher_count(), 1);
  context.TryCancel();
  while (reader->Read(&event)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  const absl::Time deadline = absl::Now() + kPatience;
  while (manager_->watcher_count() > 0 && absl::Now() < deadline) std::this_thread::yield();
  EXPECT_EQ(manager_->watcher_count(), 0);
}

TEST_F(WatchStreamTest, ManyWatchersThatComeAndGoEachSeeEverything) {
  CreateRunningJob("a");
  std::vector<std::thread> watchers;
  std::atomic<int> complete = 0;
  for (int i = 0; i < 20; ++i) {
    watchers.emplace_back([&, i] {
      grpc::ClientContext context;
      auto reader = Watch(&context, "a");
      v1::JobEvent event;
      int64_t count = 0;
      // Every other one leaves in the midst of it.
      while (reader->Read(&event) && (i % 2 == 0 || count < 20)) {
        if (event.sequence() != ++count) return;
      }
      if (i % 2 != 0) context.TryCancel();
      const bool ok = reader->Finish().ok();
      if (i % 2 != 0 || (ok && event.state_change().to() == v1::Job::SUCCEEDED)) ++complete;
    });
  }
  for (int64_t i = 3; i <= 60; ++i) ASSERT_TRUE(Report("a", 1, {StepReport(i, i - 1)}).ok());
  ASSERT_TRUE(Report("a", 1, {EndedReport(61, Ended::SUCCEEDED)}).ok());
  Exit("a", 1);
  for (std::thread& watcher : watchers) watcher.join();
  EXPECT_EQ(complete, 20);
}

}  // namespace
}  // namespace millrace
