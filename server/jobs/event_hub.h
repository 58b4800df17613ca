// Wakes those who watch a job when something was committed for it.
#ifndef MILLRACE_SERVER_JOBS_EVENT_HUB_H_
#define MILLRACE_SERVER_JOBS_EVENT_HUB_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace millrace {

class EventHub {
 private:
  struct Watcher;

 public:
  // Ends when destroyed: after that `wake` is not called and no call is in progress, except when it
  // is destroyed from within that very call. Must not outlive the hub.
  class Subscription {
   public:
    Subscription() = default;
    Subscription(Subscription&& other) noexcept;
    Subscription& operator=(Subscription&& other) noexcept;
    ~Subscription();

   private:
    friend class EventHub;
    Subscription(EventHub* hub, std::shared_ptr<Watcher> watcher);
    void End();

    EventHub* hub_ = nullptr;
    std::shared_ptr<Watcher> watcher_;
  };

  // `wake` must be quick; it runs on the thread that calls Wake().
  Subscription Subscribe(const std::string& job_id, std::function<void()> wake);

  // Calls every watcher of the job. No lock is held that a watcher could want.
  void Wake(const std::string& job_id);

  int64_t subscriber_count() const;

 private:
  mutable absl::Mutex mutex_;
  std::multimap<std::string, std::shared_ptr<Watcher>> watchers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_JOBS_EVENT_HUB_H_
