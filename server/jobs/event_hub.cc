#include "server/jobs/event_hub.h"

#include <utility>
#include <vector>

namespace millrace {

struct EventHub::Watcher {
  std::string job_id;
  std::function<void()> wake;
  absl::Mutex mutex;
  // The thread that is inside `wake`; a default id when there is none.
  std::thread::id caller ABSL_GUARDED_BY(mutex);
  bool ended ABSL_GUARDED_BY(mutex) = false;
};

EventHub::Subscription::Subscription(EventHub* hub, std::shared_ptr<Watcher> watcher)
    : hub_(hub), watcher_(std::move(watcher)) {}

EventHub::Subscription::Subscription(Subscription&& other) noexcept
    : hub_(other.hub_), watcher_(std::move(other.watcher_)) {}

EventHub::Subscription& EventHub::Subscription::operator=(Subscription&& other) noexcept {
  if (this != &other) {
    End();
    hub_ = other.hub_;
    watcher_ = std::move(other.watcher_);
  }
  return *this;
}

EventHub::Subscription::~Subscription() { End(); }

void EventHub::Subscription::End() {
  if (watcher_ == nullptr) return;
  {
    absl::MutexLock lock(&hub_->mutex_);
    auto [begin, end] = hub_->watchers_.equal_range(watcher_->job_id);
    for (auto it = begin; it != end; ++it) {
      if (it->second == watcher_) {
        hub_->watchers_.erase(it);
        break;
      }
    }
  }
  {
    Watcher& watcher = *watcher_;
    absl::MutexLock lock(&watcher.mutex);
    watcher.ended = true;
    const auto is_left = [&watcher]() ABSL_SHARED_LOCKS_REQUIRED(watcher.mutex) {
      return watcher.caller == std::thread::id() || watcher.caller == std::this_thread::get_id();
    };
    watcher.mutex.Await(absl::Condition(&is_left));
  }
  watcher_ = nullptr;
}

EventHub::Subscription EventHub::Subscribe(const std::string& job_id, std::function<void()> wake) {
  auto watcher = std::make_shared<Watcher>();
  watcher->job_id = job_id;
  watcher->wake = std::move(wake);
  absl::MutexLock lock(&mutex_);
  watchers_.emplace(job_id, watcher);
  return Subscription(this, std::move(watcher));
}

void EventHub::Wake(const std::string& job_id) {
  std::vector<std::shared_ptr<Watcher>> watchers;
  {
    absl::MutexLock lock(&mutex_);
    auto [begin, end] = watchers_.equal_range(job_id);
    for (auto it = begin; it != end; ++it) watchers.push_back(it->second);
  }
  for (const auto& watcher : watchers) {
    {
      absl::MutexLock lock(&watcher->mutex);
      if (watcher->ended) continue;
      watcher->caller = std::this_thread::get_id();
    }
    watcher->wake();
    absl::MutexLock lock(&watcher->mutex);
    watcher->caller = std::thread::id();
  }
}

int64_t EventHub::subscriber_count() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int64_t>(watchers_.size());
}

}  // namespace millrace
