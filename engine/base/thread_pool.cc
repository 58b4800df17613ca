#include "engine/base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <utility>

namespace millrace {
namespace {

// How long a waiting thread looks before it sleeps: long enough to bridge the gap between two ops,
// since to be woken takes as long, and short enough not to burn a core while the step waits for
// something else.
constexpr int kRounds = 64;
constexpr int kPausesPerRound = 32;  // about 1 µs

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Between rounds the core is offered to whoever else can run: with more threads than cores that may
// be the very one that is waited for.
template <typename T>
void WaitWhile(const std::atomic<T>& value, T old) {
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kPausesPerRound; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      Pause();
    }
    sched_yield();
  }
  while (value.load(std::memory_order_acquire) == old) {
    value.wait(old, std::memory_order_acquire);
  }
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { Work(i); });
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(absl::FunctionRef<void(int)> function) {
  while (busy_.test_and_set(std::memory_order_acquire)) busy_.wait(true);
  function_ = &function;
  remaining_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  Call(0);
  for (int left = remaining_.load(std::memory_order_acquire); left != 0;
       left = remaining_.load(std::memory_order_acquire)) {
    WaitWhile(remaining_, left);
  }
  const std::exception_ptr exception = std::exchange(exception_, nullptr);
  failed_.clear(std::memory_order_relaxed);
  busy_.clear(std::memory_order_release);
  busy_.notify_one();
  if (exception != nullptr) std::rethrow_exception(exception);
}

void ThreadPool::Call(int thread) {
  try {
    (*function_)(thread);
  } catch (...) {
    if (!failed_.test_and_set(std::memory_order_acquire)) exception_ = std::current_exception();
  }
}

void ThreadPool::Work(int thread) {
  uint32_t seen = 0;
  while (true) {
    WaitWhile(generation_, seen);
    seen = generation_.load(std::memory_order_acquire);
    if (stopping_.load()) return;
    Call(thread);
    if (remaining_.fetch_sub(1, std::memory_order_acq_rel) == 1) remaining_.notify_one();
  }
}

ThreadPool::Range ThreadPool::Split(int64_t count, int64_t grain, int thread, int threads) {
  const int64_t grains = (count + grain - 1) / grain;
  const int64_t begin = grains * thread / threads * grain;
  const int64_t end = grains * (thread + 1) / threads * grain;
  return {std::min(begin, count), std::min(end, count)};
}

void ThreadPool::ParallelFor(int64_t count, int64_t grain,
                             absl::FunctionRef<void(int64_t, int64_t)> function) {
  if (count <= grain || workers_.empty()) {
    if (count > 0) function(0, count);
    return;
  }
  Run([&](int thread) {
    const Range range = Split(count, grain, thread, threads());
    if (range.begin < range.end) function(range.begin, range.end);
  });
}

}  // namespace millrace
