#include "server/worker/job_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "tests/server/worker/temp_folder.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

TEST(JobLock, IsTakenOnce) {
  const std::string folder = MakeTempFolder();
  {
    auto lock = JobLock::Take(folder);
    ASSERT_TRUE(lock.ok()) << lock.status();
    ASSERT_TRUE(lock->WriteOwner(getpid()).ok());
    const absl::Status second = JobLock::Take(folder).status();
    EXPECT_EQ(second.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(second.message()), HasSubstr(std::to_string(getpid())));
  }
  EXPECT_TRUE(JobLock::Take(folder).ok()) << "given back with its owner";
}

TEST(JobLock, StaysWithAChildThatWasHandedIt) {
  const std::string folder = MakeTempFolder();
  pid_t child = 0;
  {
    auto lock = JobLock::Take(folder);
    ASSERT_TRUE(lock.ok());
    child = fork();
    if (child == 0) {
      while (true) pause();
    }
    ASSERT_TRUE(lock->WriteOwner(child).ok());
  }
  EXPECT_FALSE(JobLock::Take(folder).ok());
  auto owner = FindJobLockOwner(folder, absl::Seconds(10));
  ASSERT_TRUE(owner.ok()) << owner.status();
  ASSERT_TRUE(owner->has_value());
  EXPECT_EQ((*owner)->pid, child);

  kill(child, SIGKILL);
  pollfd file = {(*owner)->pidfd.get(), POLLIN, 0};
  EXPECT_EQ(poll(&file, 1, 30'000), 1) << "the pidfd tells of the end";
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(JobLock::Take(folder).ok());
}

TEST(JobLock, HasNoOwnerWhenFree) {
  const std::string folder = MakeTempFolder();
  auto never = FindJobLockOwner(folder, absl::ZeroDuration());
  ASSERT_TRUE(never.ok());
  EXPECT_FALSE(never->has_value());
  {
    auto lock = JobLock::Take(folder);
    ASSERT_TRUE(lock.ok());
    ASSERT_TRUE(lock->WriteOwner(getpid()).ok());
  }
  auto given_back = FindJobLockOwner(folder, absl::ZeroDuration());
  ASSERT_TRUE(given_back.ok());
  EXPECT_FALSE(given_back->has_value()) << "the id in the file counts only while it is locked";
}

TEST(JobLock, WaitsForAnOwnerToSayWhoItIs) {
  const std::string folder = MakeTempFolder();
  auto lock = JobLock::Take(folder);
  ASSERT_TRUE(lock.ok());
  EXPECT_EQ(FindJobLockOwner(folder, absl::Milliseconds(20)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace millrace
