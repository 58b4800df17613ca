#include "engine/device/cpu/thread_stream.h"

#include <pthread.h>

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/device/cpu/copy.h"

namespace millrace {
namespace {

// How much later than ideal a stream may be and still be forgiven when its next transfer is timed:
// some wake-ups' worth. Anything more is time that the link has really lain idle.
constexpr int64_t kForgivenLatenessNs = 200'000;

// Names of threads have at most 15 characters.
constexpr size_t kLongestThreadName = 15;

}  // namespace

absl::Status RunWork(const std::function<absl::Status()>& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of host memory in a stream's work");
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("exception in a stream's work: ", error.what()));
  } catch (...) {
    return absl::InternalError("exception of unknown type in a stream's work");
  }
}

void StreamPoint::Reach(const absl::Status& status, int64_t time_ns) {
  status_ = status;
  time_ns_ = time_ns;
  reached_.store(1, std::memory_order_release);
  reached_.notify_all();
}

absl::Status ThreadEvent::Synchronize() {
  if (point_ == nullptr) return absl::OkStatus();
  point_->Await();
  return point_->status();
}

ThreadStream::ThreadStream(absl::string_view name, LinkClock& clock)
    : name_(name), clock_(clock), thread_([this] { Loop(); }) {}

ThreadStream::~ThreadStream() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    if (!Idle()) {
      status_.Update(absl::CancelledError(absl::StrCat("the stream ", name_, " was destroyed")));
    }
  }
  thread_.join();
}

void ThreadStream::Record(Event& event) {
  auto point = std::make_shared<StreamPoint>();
  static_cast<ThreadEvent&>(event).point_ = point;
  Enqueue(RecordPoint{std::move(point)});
}

void ThreadStream::Wait(Event& event) {
  const std::shared_ptr<StreamPoint>& point = static_cast<ThreadEvent&>(event).point_;
  if (point != nullptr) Enqueue(AwaitPoint{point});
}

void ThreadStream::RunOnHost(std::function<absl::Status()> function) {
  Enqueue(std::move(function));
}

void ThreadStream::Copy(Link& link, void* to, const void* from, size_t bytes) {
  Enqueue(Transfer{&link, to, from, bytes});
}

absl::Status ThreadStream::Synchronize() {
  absl::MutexLock lock(&mutex_, absl::Condition(this, &ThreadStream::Idle));
  return status_;
}

void ThreadStream::Enqueue(decltype(Item::task) task) {
  const int64_t now_ns = clock_.NowNs();
  absl::MutexLock lock(&mutex_);
  queue_.push_back({std::move(task), now_ns});
  ++enqueued_;
}

void ThreadStream::Loop() {
  pthread_setname_np(pthread_self(), name_.substr(0, kLongestThreadName).c_str());
  while (true) {
    Item item;
    absl::Status status;
    {
      absl::MutexLock lock(&mutex_, absl::Condition(this, &ThreadStream::HasWork));
      if (queue_.empty()) return;
      item = std::move(queue_.front());
      queue_.pop_front();
      status = status_;
    }
    ready_ns_ = std::max(ready_ns_, item.enqueued_ns);
    arrived_ns_ = std::max(arrived_ns_, item.enqueued_ns);
    if (const RecordPoint* record = std::get_if<RecordPoint>(&item.task)) {
      record->point->Reach(status, arrived_ns_);
    } else if (status.ok()) {
      if (const Work* work = std::get_if<Work>(&item.task)) status = Do(*work);
      if (const Transfer* transfer = std::get_if<Transfer>(&item.task)) status = Do(*transfer);
      if (const AwaitPoint* await = std::get_if<AwaitPoint>(&item.task)) status = Do(*await);
    }
    item.task = Work();  // what it holds is let go before anybody hears that it is done
    absl::MutexLock lock(&mutex_);
    status_.Update(status);
    ++done_;
  }
}

void ThreadStream::SetTime(int64_t ideal_ns) {
  const int64_t time_ns = std::max(ideal_ns, clock_.NowNs() - kForgivenLatenessNs);
  ready_ns_ = std::max(ready_ns_, time_ns);
  arrived_ns_ = std::max(arrived_ns_, time_ns);
}

absl::Status ThreadStream::Do(const Work& work) {
  const int64_t begin_ns = clock_.NowNs();
  absl::Status status = RunWork(work);
  SetTime(arrived_ns_ + clock_.NowNs() - begin_ns);
  return status;
}

absl::Status ThreadStream::Do(const AwaitPoint& await) {
  if (!await.point->reached()) {
    await.point->Await();
    SetTime(await.point->time_ns());
  } else {
    ready_ns_ = std::max(ready_ns_, await.point->time_ns());
    arrived_ns_ = std::max(arrived_ns_, await.point->time_ns());
  }
  return await.point->status();
}

absl::Status ThreadStream::Do(const Transfer& transfer) {
  const Link::Transfer times = transfer.link->Reserve(transfer.bytes, ready_ns_);
  if (transfer.to != transfer.from) CopyMemory(transfer.to, transfer.from, transfer.bytes);
  clock_.SleepUntilNs(times.arrived_ns);
  ready_ns_ = times.left_ns;
  arrived_ns_ = times.arrived_ns;
  return absl::OkStatus();
}

}  // namespace millrace
