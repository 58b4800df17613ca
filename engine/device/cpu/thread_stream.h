// Streams that run on a thread of their own, and the events that order them.
#ifndef MILLRACE_ENGINE_DEVICE_CPU_THREAD_STREAM_H_
#define MILLRACE_ENGINE_DEVICE_CPU_THREAD_STREAM_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "engine/device/cpu/link.h"
#include "engine/device/cpu/link_clock.h"
#include "engine/device/device.h"

namespace millrace {

// `work`'s status; what it throws becomes one (RESOURCE_EXHAUSTED for lack of memory, else
// INTERNAL).
absl::Status RunWork(const std::function<absl::Status()>& work);

// Where a stream was when an event was recorded.
class StreamPoint {
 public:
  // Once, by the stream.
  void Reach(const absl::Status& status, int64_t time_ns);
  bool reached() const { return reached_.load(std::memory_order_acquire) != 0; }
  void Await() const { reached_.wait(0, std::memory_order_acquire); }
  // Of a point that is reached: the error that made the stream skip it, and when, on the clock of
  // the link, all before it was done.
  const absl::Status& status() const { return status_; }
  int64_t time_ns() const { return time_ns_; }

 private:
  absl::Status status_;
  int64_t time_ns_ = 0;
  std::atomic<int> reached_{0};
};

class ThreadEvent final : public Event {
 public:
  absl::Status Synchronize() override;

 private:
  friend class ThreadStream;
  std::shared_ptr<StreamPoint> point_;  // the newest; nullptr when never recorded
};

class ThreadStream final : public Stream {
 public:
  // `clock` outlives the stream.
  ThreadStream(absl::string_view name, LinkClock& clock);
  // What has not begun is dropped; streams that wait for it get the error CANCELLED.
  ~ThreadStream() override;

  void Record(Event& event) override;
  void Wait(Event& event) override;
  void RunOnHost(std::function<absl::Status()> function) override;
  absl::Status Synchronize() override;

  // Copies as fast as memory allows, then sleeps until `link` (which outlives the stream) would
  // have delivered it.
  void Copy(Link& link, void* to, const void* from, size_t bytes);

 private:
  using Work = std::function<absl::Status()>;
  struct Transfer {
    Link* link;
    void* to;
    const void* from;
    size_t bytes;
  };
  struct RecordPoint {
    std::shared_ptr<StreamPoint> point;
  };
  struct AwaitPoint {
    std::shared_ptr<StreamPoint> point;
  };
  struct Item {
    std::variant<Work, Transfer, RecordPoint, AwaitPoint> task;
    int64_t enqueued_ns;
  };

  void Enqueue(decltype(Item::task) task);
  void Loop();
  // Run on the stream's thread, one after the other.
  absl::Status Do(const Work& work);
  absl::Status Do(const Transfer& transfer);
  absl::Status Do(const AwaitPoint& await);
  void SetTime(int64_t ideal_ns);

  bool Idle() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return enqueued_ == done_; }
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_ || !queue_.empty(); }

  const std::string name_;
  LinkClock& clock_;

  absl::Mutex mutex_;
  std::deque<Item> queue_ ABSL_GUARDED_BY(mutex_);
  int64_t enqueued_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t done_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);

  // Of the stream's thread. When the next transfer can enter its link and when all so far has
  // arrived, had every wake-up been instant: so lateness of one transfer is not added to the next.
  int64_t ready_ns_ = 0;
  int64_t arrived_ns_ = 0;

  std::thread thread_;  // last, as it uses the others
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DEVICE_CPU_THREAD_STREAM_H_
