// A few threads for calls that wait on a disk, so that the threads of gRPC never do.
#ifndef MILLRACE_SERVER_RPC_EXECUTOR_H_
#define MILLRACE_SERVER_RPC_EXECUTOR_H_

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace millrace {

class Executor {
 public:
  explicit Executor(int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Loop(); });
  }

  // Runs what was handed in, then ends.
  ~Executor() {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    for (std::thread& thread : threads_) thread.join();
  }

  // Thread-safe.
  void Run(std::function<void()> task) {
    absl::MutexLock lock(&mutex_);
    tasks_.push_back(std::move(task));
  }

 private:
  void Loop() {
    while (true) {
      std::function<void()> task;
      {
        absl::MutexLock lock(&mutex_);
        const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
          return stopping_ || !tasks_.empty();
        };
        mutex_.Await(absl::Condition(&has_work));
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  absl::Mutex mutex_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_RPC_EXECUTOR_H_
