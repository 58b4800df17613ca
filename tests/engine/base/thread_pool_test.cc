#include "engine/base/thread_pool.h"

#include <atomic>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace millrace {
namespace {

TEST(ThreadPoolTest, RunCallsEveryThreadOnce) {
  for (int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int repeat = 0; repeat < 200; ++repeat) {
      std::vector<int> calls(static_cast<size_t>(threads), 0);
      pool.Run([&](int thread) { ++calls[static_cast<size_t>(thread)]; });
      EXPECT_EQ(calls, std::vector<int>(static_cast<size_t>(threads), 1));
    }
  }
}

TEST(ThreadPoolTest, ParallelForCoversEveryIndexOnce) {
  ThreadPool pool(3);
  for (int64_t count : {0, 1, 2, 3, 10, 1001}) {
    for (int64_t grain : {1, 4, 64}) {
      std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
      pool.ParallelFor(count, grain, [&](int64_t begin, int64_t end) {
        EXPECT_EQ(begin % grain, 0);
        for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
      });
      for (const std::atomic<int>& hit : hits) EXPECT_EQ(hit.load(), 1);
    }
  }
}

TEST(ThreadPoolTest, TheDivisionDependsOnSizesAlone) {
  int64_t covered = 0;
  for (int thread = 0; thread < 5; ++thread) {
    const ThreadPool::Range range = ThreadPool::Split(1000, 16, thread, 5);
    EXPECT_EQ(range.begin, covered);
    EXPECT_TRUE(range.end % 16 == 0 || range.end == 1000);
    covered = range.end;
  }
  EXPECT_EQ(covered, 1000);
}

TEST(ThreadPoolTest, CallersOfSeveralThreadsTakeTurns) {
  ThreadPool pool(2);
  std::atomic<int> inside{0}, total{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        pool.Run([&](int) {
          EXPECT_LE(++inside, 2);
          ++total;
          --inside;
        });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total.load(), 600);
}

TEST(ThreadPoolTest, AnExceptionReachesTheCallerOnceAllAreDone) {
  ThreadPool pool(3);
  for (int thrower = 0; thrower < 3; ++thrower) {
    std::atomic<int> calls{0};
    const auto run = [&] {
      pool.Run([&](int thread) {
        ++calls;
        if (thread == thrower) throw std::runtime_error("broken");
      });
    };
    EXPECT_THROW(run(), std::runtime_error);
    EXPECT_EQ(calls.load(), 3);
    pool.Run([&](int) { ++calls; });
    EXPECT_EQ(calls.load(), 6);
  }
}

}  // namespace
}  // namespace millrace
