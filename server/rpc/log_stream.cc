#include "server/rpc/log_stream.h"

#include <grpcpp/alarm.h>

#include <chrono>
#include <memory>
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
#include "server/jobs/attempt_log.h"
#include "server/rpc/status_to_grpc.h"

namespace millrace {
namespace {

constexpr std::chrono::milliseconds kPollInterval(100);

// One write or one alarm is under way at a time; when it ends the stream continues, so that nothing
// runs at once but OnCancel.
class LogStream : public grpc::ServerWriteReactor<v1::ReadLogsResponse> {
 public:
  LogStream(DataPaths paths, JobManager* manager, const v1::ReadLogsRequest& request)
      : paths_(std::move(paths)), manager_(manager), request_(request) {
    if (absl::Status status = Begin(); !status.ok()) {
      Finish(ToGrpcStatus(status));
    } else {
      Continue();
    }
  }

  void OnWriteDone(bool ok) override { ContinueIf(ok); }

  void OnCancel() override {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
    if (alarm_ != nullptr) alarm_->Cancel();
  }

  void OnDone() override { delete this; }

 private:
  absl::Status Begin() {
    MILLRACE_ASSIGN_OR_RETURN(job_id_, ParseJobName("name", request_.name()));
    std::vector<FieldViolation> violations;
    if (request_.attempt() < 0) {
      violations.push_back(
          {"attempt", absl::StrCat(request_.attempt(), " is negative; give 0 for the newest")});
    }
    if (request_.tail_lines() < 0) {
      violations.push_back({"tail_lines", absl::StrCat(request_.tail_lines(),
                                                       " is negative; give 0 for all lines")});
    }
    if (!violations.empty()) return MakeFieldError(ErrorReason::kRequestInvalid, violations);
    return manager_->GetAttempt(job_id_, request_.attempt()).status();
  }

  void ContinueIf(bool ok) {
    if (ok) {
      Continue();
    } else {
      Finish(ToGrpcStatus(absl::CancelledError("the reader is gone")));
    }
  }

  void Continue() {
    absl::StatusOr<bool> more;
    {
      absl::MutexLock lock(&mutex_);
      more = cancelled_ ? absl::CancelledError("the reader is gone") : SendOrWait();
    }
    if (more.ok() && *more) return;
    // Last, and without the lock: the stream may be deleted by another thread from here on.
    Finish(ToGrpcStatus(more.status()));
  }

  // False when all was sent.
  absl::StatusOr<bool> SendOrWait() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    // Asked before reading: what an attempt that is over has written is all there.
    const int32_t attempt = log_ == nullptr ? request_.attempt() : response_.attempt();
    MILLRACE_ASSIGN_OR_RETURN(const AttemptStatus status, manager_->GetAttempt(job_id_, attempt));
    if (log_ == nullptr && status.attempt > 0) {
      log_ = std::make_unique<AttemptLog>(paths_.AttemptLog(job_id_, status.attempt),
                                          request_.tail_lines());
      response_.set_attempt(status.attempt);
    }
    const bool is_last_look = status.over || !request_.follow();
    if (log_ != nullptr) {
      MILLRACE_ASSIGN_OR_RETURN(*response_.mutable_data(), log_->Read(is_last_look));
      if (!response_.data().empty()) {
        StartWrite(&response_);
        return true;
      }
    }
    if (is_last_look) return false;
    // A new alarm each time: one that has fired cannot be set again from its own call.
    alarm_ = std::make_unique<grpc::Alarm>();
    alarm_->Set(std::chrono::system_clock::now() + kPollInterval,
                [this](bool ok) { ContinueIf(ok); });
    return true;
  }

  const DataPaths paths_;
  JobManager* const manager_;
  const v1::ReadLogsRequest request_;
  std::string job_id_;

  absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<AttemptLog> log_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);
  v1::ReadLogsResponse response_;
};

}  // namespace

grpc::ServerWriteReactor<v1::ReadLogsResponse>* StartLogStream(const DataPaths& paths,
                                                               JobManager* manager,
                                                               const v1::ReadLogsRequest& request) {
  return new LogStream(paths, manager, request);
}

}  // namespace millrace
