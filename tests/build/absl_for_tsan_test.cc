// Under --config=tsan, each of these reports a race unless the sanitizer knows the order that
// Abseil's locks give. Elsewhere they pass trivially.

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace {

TEST(AbslForTsanTest, MutexOrdersItsHolders) {
  absl::Mutex mutex;
  int sum = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 1000; ++j) {
        absl::MutexLock lock(&mutex);
        ++sum;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum, 4000);
}

TEST(AbslForTsanTest, AwaitSeesWhatWasWrittenUnderTheLock) {
  absl::Mutex mutex;
  bool ready = false;
  auto value = std::make_unique<int>(0);
  std::thread writer([&] {
    absl::MutexLock lock(&mutex);
    *value = 7;
    ready = true;
  });
  {
    absl::MutexLock lock(&mutex, absl::Condition(&ready));
    EXPECT_EQ(*value, 7);
    EXPECT_TRUE(mutex.AwaitWithTimeout(absl::Condition(&ready), absl::Seconds(1)));
  }
  writer.join();
}

TEST(AbslForTsanTest, CondVarHandsOver) {
  absl::Mutex mutex;
  absl::CondVar changed;
  int turn = 0;
  std::thread other([&] {
    absl::MutexLock lock(&mutex);
    turn = 1;
    changed.SignalAll();
  });
  {
    absl::MutexLock lock(&mutex);
    while (turn == 0) changed.WaitWithTimeout(&mutex, absl::Milliseconds(50));
    turn = 2;
  }
  other.join();
  EXPECT_EQ(turn, 2);
}

TEST(AbslForTsanTest, NotificationAndBlockingCounterPublish) {
  int first = 0;
  int second = 0;
  absl::Notification notified;
  absl::BlockingCounter done(2);
  std::thread one([&] {
    first = 1;
    notified.Notify();
    done.DecrementCount();
  });
  std::thread two([&] {
    while (!notified.HasBeenNotified()) std::this_thread::yield();
    second = first + 1;
    done.DecrementCount();
  });
  notified.WaitForNotification();
  EXPECT_EQ(first, 1);
  done.Wait();
  EXPECT_EQ(second, 2);
  one.join();
  two.join();
}

}  // namespace
