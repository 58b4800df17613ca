// The engine's compute threads.
//
//   ThreadPool pool(4);
//   pool.ParallelFor(rows, [&](int64_t begin, int64_t end) { ... });
//
// Work is divided by position alone, never by who is free first, so that which thread does what
// (and with it every sum) depends only on the sizes and on the number of threads.
#ifndef MILLRACE_ENGINE_BASE_THREAD_POOL_H_
#define MILLRACE_ENGINE_BASE_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace millrace {

class ThreadPool {
 public:
  // `threads` ≥ 1 counts the calling thread, which takes part in all work.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls function(t) for every t in [0, threads()), each on its own thread; returns when all are
  // done. One call at a time: concurrent callers wait for each other. Not reentrant. Throws what
  // the first call that failed has thrown, once all are done.
  void Run(absl::FunctionRef<void(int thread)> function);

  // Splits [0, count) into threads() contiguous ranges whose bounds are multiples of `grain`
  // (but for the last) and calls function(begin, end) for each that is not empty.
  void ParallelFor(int64_t count, int64_t grain,
                   absl::FunctionRef<void(int64_t begin, int64_t end)> function);
  void ParallelFor(int64_t count, absl::FunctionRef<void(int64_t begin, int64_t end)> function) {
    ParallelFor(count, 1, function);
  }

  // Range that `thread` of `threads` gets of [0, count).
  struct Range {
    int64_t begin, end;
  };
  static Range Split(int64_t count, int64_t grain, int thread, int threads);

 private:
  void Call(int thread);
  void Work(int thread);

  std::vector<std::thread> workers_;
  std::atomic_flag busy_;
  const absl::FunctionRef<void(int)>* function_ = nullptr;
  // Rises by one for each Run; workers wait on it.
  std::atomic<uint32_t> generation_{0};
  std::atomic<int> remaining_{0};
  std::atomic<bool> stopping_{false};
  std::atomic_flag failed_;
  std::exception_ptr exception_;  // written by whoever has set failed_
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_BASE_THREAD_POOL_H_
