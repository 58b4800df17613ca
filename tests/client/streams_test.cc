// Watching and log following over connections that break.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/lib/errors.h"
#include "client/lib/logs.h"
#include "client/lib/watch.h"
#include "tests/client/fake_daemon.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;

std::unique_ptr<Connection> Connect(const FakeDaemon& daemon, std::stop_token stop = {}) {
  Connection::Options options;
  options.address = daemon.address();
  options.stop = std::move(stop);
  return *Connection::Open(options);
}

v1::JobEvent Step(int64_t step) {
  v1::JobEvent event;
  event.set_attempt(1);
  event.mutable_step()->set_step(step);
  return event;
}

void End(FakeDaemon* daemon, v1::Job::State state) {
  v1::JobEvent event;
  event.set_attempt(daemon->job.attempt());
  event.mutable_state_change()->set_to(state);
  daemon->job.set_state(state);
  daemon->AddEvent(event);
}

class WatchTest : public ::testing::Test {
 protected:
  absl::StatusOr<v1::Job> Watch(int64_t after = 0) {
    WatchOptions options;
    options.after_sequence = after;
    options.on_reconnect = [this](const absl::Status&) { ++reconnects_; };
    return WatchJob(*Connect(daemon_, stop_.get_token()), "jobs/plays", options,
                    [this](const v1::JobEvent& event) {
                      seen_.push_back(event.sequence());
                      return !on_event_ || on_event_(event);
                    });
  }

  void ExpectSeen(int64_t first, int64_t last) {
    std::vector<int64_t> expected;
    for (int64_t i = first; i <= last; ++i) expected.push_back(i);
    EXPECT_EQ(seen_, expected);
  }

  FakeDaemon daemon_;
  std::stop_source stop_;
  std::vector<int64_t> seen_;
  int reconnects_ = 0;
  std::function<bool(const v1::JobEvent&)> on_event_;
};

TEST_F(WatchTest, SeesEachEventOnceWhenTheStreamBreaks) {
  for (int i = 1; i <= 9; ++i) daemon_.AddEvent(Step(i));
  End(&daemon_, v1::Job::SUCCEEDED);
  daemon_.break_stream_after = {3, 0, 0, 4, 1, 10};
  absl::StatusOr<v1::Job> job = Watch();
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->state(), v1::Job::SUCCEEDED);
  ExpectSeen(1, 10);
  EXPECT_EQ(reconnects_, 3);
}

TEST_F(WatchTest, BeginsAfterTheGivenSequence) {
  for (int i = 1; i <= 9; ++i) daemon_.AddEvent(Step(i));
  End(&daemon_, v1::Job::FAILED);
  ASSERT_TRUE(Watch(4).ok());
  ExpectSeen(5, 10);
}

TEST_F(WatchTest, SurvivesARestartOfTheDaemon) {
  for (int i = 1; i <= 3; ++i) daemon_.AddEvent(Step(i));
  std::thread daemon_life;
  on_event_ = [&](const v1::JobEvent& event) {
    if (event.sequence() == 3) {
      daemon_life = std::thread([&] {
        daemon_.Stop();
        for (int i = 4; i <= 6; ++i) daemon_.AddEvent(Step(i));
        End(&daemon_, v1::Job::SUCCEEDED);
        daemon_.Start();
      });
    }
    return true;
  };
  absl::StatusOr<v1::Job> job = Watch();
  daemon_life.join();
  ASSERT_TRUE(job.ok()) << job.status();
  ExpectSeen(1, 7);
}

TEST_F(WatchTest, DropsWhatComesTwice) {
  for (int i = 1; i <= 3; ++i) daemon_.AddEvent(Step(i));
  daemon_.events.push_back(daemon_.events[1]);
  v1::JobEvent last = Step(4);
  last.set_sequence(4);
  daemon_.events.push_back(last);
  daemon_.job.set_last_sequence(4);
  daemon_.job.set_state(v1::Job::CANCELLED);
  ASSERT_TRUE(Watch().ok());
  ExpectSeen(1, 4);
}

TEST_F(WatchTest, ReportsAnEventThatIsMissing) {
  for (int i = 1; i <= 5; ++i) daemon_.AddEvent(Step(i));
  daemon_.events.erase(daemon_.events.begin() + 2);
  EXPECT_EQ(Watch().status().code(), absl::StatusCode::kDataLoss);
  ExpectSeen(1, 2);
}

TEST_F(WatchTest, EndsWhenTheCallerHasSeenEnough) {
  for (int i = 1; i <= 5; ++i) daemon_.AddEvent(Step(i));
  on_event_ = [](const v1::JobEvent& event) { return event.step().step() < 2; };
  ASSERT_TRUE(Watch().ok());
  ExpectSeen(1, 2);
}

TEST_F(WatchTest, EndsWhenStopped) {
  daemon_.AddEvent(Step(1));
  std::thread stopper;
  on_event_ = [&](const v1::JobEvent&) {
    stopper = std::thread([&] { stop_.request_stop(); });
    return true;
  };
  EXPECT_EQ(Watch().status().code(), absl::StatusCode::kCancelled);
  stopper.join();
}

TEST_F(WatchTest, DoesNotWaitForAJobThatIsNotThere) {
  daemon_.job.set_name("jobs/other");
  absl::Status status = Watch().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrorReason(status), "JOB_NOT_FOUND");
}

class LogsTest : public WatchTest {
 protected:
  absl::Status Follow(int tail_lines = 0, int attempt = 0) {
    LogOptions options;
    options.tail_lines = tail_lines;
    options.attempt = attempt;
    options.on_attempt = [this](int next) { attempts_.push_back(next); };
    return FollowLog(*Connect(daemon_), "jobs/plays", options, [this](absl::string_view data) {
      text_ += std::string(data);
      if (on_data_) on_data_();
    });
  }

  std::string text_;
  std::vector<int> attempts_;
  std::function<void()> on_data_;
};

TEST_F(LogsTest, FollowGivesEachByteOnceWhenTheStreamBreaks) {
  daemon_.job.set_attempt(1);
  daemon_.logs[1] = "one\ntwo\nthree\nfour\nfive";
  daemon_.log_ended[1] = true;
  daemon_.job.set_state(v1::Job::SUCCEEDED);
  daemon_.break_stream_after = {2, 0, 3, 1};
  absl::Status status = Follow();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(text_, daemon_.logs[1]);
}

TEST_F(LogsTest, FollowGoesOnWithTheNextAttempt) {
  daemon_.job.set_attempt(1);
  daemon_.job.set_state(v1::Job::RUNNING);
  daemon_.logs[1] = "first\n";
  daemon_.log_ended[1] = true;
  std::thread restart([&] {
    // The client now waits for what comes after the first attempt.
    ASSERT_TRUE(daemon_.WaitForCalls("WatchJob", 1));
    std::lock_guard<std::mutex> lock(daemon_.mutex);
    daemon_.logs[2] = "second\n";
    daemon_.log_ended[2] = true;
    daemon_.job.set_attempt(2);
    v1::JobEvent event = Step(1);
    event.set_attempt(2);
    daemon_.AddEvent(event);
    End(&daemon_, v1::Job::SUCCEEDED);
  });
  absl::Status status = Follow();
  restart.join();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(text_, "first\nsecond\n");
  EXPECT_THAT(attempts_, ElementsAre(1, 2));
}

TEST_F(LogsTest, FollowOfOneAttemptEndsWithIt) {
  daemon_.job.set_attempt(2);
  daemon_.job.set_state(v1::Job::RUNNING);
  daemon_.logs[1] = "first\n";
  daemon_.log_ended[1] = true;
  ASSERT_TRUE(Follow(0, 1).ok());
  EXPECT_EQ(text_, "first\n");
}

TEST_F(LogsTest, TailThenFollowLosesNothingWhenTheStreamBreaks) {
  daemon_.job.set_attempt(1);
  daemon_.job.set_state(v1::Job::SUCCEEDED);
  daemon_.logs[1] = "a\na\na\na\n";
  on_data_ = [&] {
    std::lock_guard<std::mutex> lock(daemon_.mutex);
    if (daemon_.log_ended[1]) return;
    daemon_.logs[1] += "a\nb\n";
    daemon_.log_ended[1] = true;
    daemon_.break_stream_after = {5};
  };
  absl::Status status = Follow(2);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(text_, "a\na\na\nb\n");
}

TEST_F(LogsTest, ReadGivesTheTail) {
  daemon_.job.set_attempt(1);
  daemon_.logs[1] = "one\ntwo\nthree\n";
  LogOptions options;
  options.tail_lines = 2;
  std::string text;
  ASSERT_TRUE(ReadLog(*Connect(daemon_), "jobs/plays", options, [&](absl::string_view data) {
                text += std::string(data);
              }).ok());
  EXPECT_EQ(text, "two\nthree\n");
}

TEST_F(LogsTest, ReadOfAJobThatHasNotBegunIsEmpty) {
  LogOptions options;
  EXPECT_TRUE(ReadLog(*Connect(daemon_), "jobs/plays", options, [](absl::string_view) {}).ok());
}

}  // namespace
}  // namespace millrace
