// A server stream whose messages a handler writes one after the other, on a thread of its own.
//
//   return WriteStream<v1::ReadResponse>::Start([=](WriteStream<v1::ReadResponse>& stream) {
//     while (...) {
//       if (!stream.Write(response)) return absl::CancelledError("the reader is gone");
//     }
//     return absl::OkStatus();
//   }, ToGrpcStatus);
//
// For calls that compute: their number must be limited by whoever starts them.
#ifndef MILLRACE_SERVER_BASE_WRITE_STREAM_H_
#define MILLRACE_SERVER_BASE_WRITE_STREAM_H_

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <exception>
#include <functional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"

namespace millrace {

template <typename Response>
class WriteStream : public grpc::ServerWriteReactor<Response> {
 public:
  using Handler = std::function<absl::Status(WriteStream& stream)>;
  using StatusMapper = grpc::Status (*)(const absl::Status& status);

  // The stream ends with what `handler` returns, and deletes itself. An exception is INTERNAL.
  static WriteStream* Start(Handler handler, StatusMapper to_grpc) {
    auto* stream = new WriteStream;
    stream->thread_ = std::thread([stream, handler = std::move(handler), to_grpc] {
      stream->started_.WaitForNotification();
      absl::Status status;
      try {
        status = handler(*stream);
      } catch (const std::exception& exception) {
        status = absl::InternalError(absl::StrCat("the call failed: ", exception.what()));
      }
      // The stream may be gone from here on.
      stream->Finish(to_grpc(status));
    });
    stream->started_.Notify();
    return stream;
  }

  // Waits until there is room on the wire. False when the reader is gone. Called by the handler.
  bool Write(const Response& response) {
    {
      absl::MutexLock lock(&mutex_);
      if (cancelled_) return false;
      writing_ = true;
    }
    this->StartWrite(&response);
    absl::MutexLock lock(&mutex_);
    const auto written = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !writing_; };
    mutex_.Await(absl::Condition(&written));
    return !failed_;
  }

  // Set once the reader is gone.
  const std::atomic<bool>& cancelled() const { return cancelled_; }

  // Calls `function` when the reader is gone, at once if it is; until then, or until it is replaced
  // by nullptr, what it uses must live.
  void WhenCancelled(std::function<void()> function) {
    absl::MutexLock lock(&hook_mutex_);
    hook_ = std::move(function);
    if (hook_ && cancelled_) hook_();
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    if (!ok) failed_ = true;
  }

  void OnCancel() override {
    absl::MutexLock lock(&hook_mutex_);
    cancelled_ = true;
    if (hook_) hook_();
  }

  void OnDone() override {
    if (thread_.get_id() == std::this_thread::get_id()) {
      thread_.detach();
    } else {
      thread_.join();
    }
    delete this;
  }

 private:
  WriteStream() = default;

  std::thread thread_;
  absl::Notification started_;
  std::atomic<bool> cancelled_{false};
  absl::Mutex hook_mutex_;
  std::function<void()> hook_ ABSL_GUARDED_BY(hook_mutex_);
  absl::Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_BASE_WRITE_STREAM_H_
