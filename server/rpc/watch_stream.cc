#include "server/rpc/watch_stream.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "engine/base/status_macros.h"
#include "server/base/errors.h"
#include "server/base/resource_names.h"
#include "server/rpc/status_to_grpc.h"

namespace millrace {
namespace {

constexpr int kEventsPerPage = 64;

class WatchStream : public grpc::ServerWriteReactor<v1::JobEvent> {
 public:
  WatchStream(JobManager* manager, Executor* executor, const v1::WatchJobRequest& request)
      : manager_(manager), executor_(executor), after_sequence_(request.after_sequence()) {
    if (absl::Status status = Begin(request); !status.ok()) {
      {
        absl::MutexLock lock(&mutex_);
        finished_ = true;
      }
      Finish(ToGrpcStatus(status));
      return;
    }
    Continue();
  }

  void OnWriteDone(bool ok) override {
    {
      absl::MutexLock lock(&mutex_);
      writing_ = false;
    }
    if (ok) {
      Continue();
    } else {
      End(absl::CancelledError("the watcher is gone"));
    }
  }

  void OnCancel() override { End(absl::CancelledError("the watcher is gone")); }

  void OnDone() override {
    // No wake-up comes after this, only what was handed to the executor before.
    subscription_ = {};
    {
      absl::MutexLock lock(&mutex_);
      done_ = true;
      if (tasks_ > 0) return;
    }
    delete this;
  }

 private:
  absl::Status Begin(const v1::WatchJobRequest& request) {
    MILLRACE_ASSIGN_OR_RETURN(job_id_, ParseJobName("name", request.name()));
    MILLRACE_ASSIGN_OR_RETURN(const v1::Job job, manager_->GetJob(job_id_));
    if (after_sequence_ < 0 || after_sequence_ > job.last_sequence()) {
      return MakeFieldError(
          ErrorReason::kRequestInvalid,
          {{"after_sequence", absl::StrCat(after_sequence_, " is not among the job's events, 0 to ",
                                           job.last_sequence(), "; begin again with 0")}});
    }
    subscription_ = manager_->Subscribe(job_id_, [this] { Wake(); });
    return absl::OkStatus();
  }

  // Runs after a commit on the store's writer thread, which has better things to do than to read.
  void Wake() {
    {
      absl::MutexLock lock(&mutex_);
      // While one is written, OnWriteDone goes on from there.
      if (woken_ || writing_ || finished_) return;
      woken_ = true;
      ++tasks_;
    }
    executor_->Run([this] { RunTask(); });
  }

  void RunTask() {
    {
      absl::MutexLock lock(&mutex_);
      woken_ = false;
    }
    Continue();
    {
      absl::MutexLock lock(&mutex_);
      if (--tasks_ > 0 || !done_) return;
    }
    delete this;
  }

  // Sends the next event, or waits to be called again; ends the stream after the last.
  void Continue() {
    absl::Status end;
    {
      absl::MutexLock lock(&mutex_);
      if (writing_ || finished_) return;
      if (next_ == page_.events.size()) {
        absl::StatusOr<EventPage> page =
            manager_->ReadEvents(job_id_, after_sequence_, kEventsPerPage);
        next_ = 0;
        page_ = page.ok() ? *std::move(page) : EventPage();
        if (!page.ok()) {
          end = page.status();
          finished_ = true;
        } else if (page_.events.empty()) {
          if (!page_.complete) return;
          finished_ = true;
        }
      }
      if (!finished_) {
        const v1::JobEvent& event = page_.events[next_++];
        after_sequence_ = event.sequence();
        writing_ = true;
        StartWrite(&event);
        return;
      }
    }
    // Last, and without the lock: the stream may be deleted by another thread from here on.
    Finish(ToGrpcStatus(end));
  }

  void End(absl::Status status) {
    {
      absl::MutexLock lock(&mutex_);
      if (finished_) return;
      finished_ = true;
    }
    Finish(ToGrpcStatus(status));
  }

  JobManager* const manager_;
  Executor* const executor_;
  std::string job_id_;

  absl::Mutex mutex_;
  int64_t after_sequence_;
  EventPage page_ ABSL_GUARDED_BY(mutex_);
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  // A task waits that will read what is new.
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  // Tasks on the executor, waiting or running; the last one of a stream that is done deletes it.
  int tasks_ ABSL_GUARDED_BY(mutex_) = 0;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;

  // Last, so that it ends first: no wake-up finds a stream half gone.
  EventHub::Subscription subscription_;
};

}  // namespace

grpc::ServerWriteReactor<v1::JobEvent>* StartWatchStream(JobManager* manager, Executor* executor,
                                                         const v1::WatchJobRequest& request) {
  return new WatchStream(manager, executor, request);
}

}  // namespace millrace
