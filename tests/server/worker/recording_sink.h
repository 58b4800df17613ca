// A WorkerReportSink that remembers what it was told, and that tests can wait on.
#ifndef MILLRACE_TESTS_SERVER_WORKER_RECORDING_SINK_H_
#define MILLRACE_TESTS_SERVER_WORKER_RECORDING_SINK_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/jobs/worker_launcher.h"

namespace millrace {

// Stores reports as the job manager does: each sequence once, without gaps.
class RecordingSink : public WorkerReportSink {
 public:
  void ApplyReports(const std::string& job_id, int32_t attempt,
                    std::vector<v1::WorkerReport> reports, ReportsDone done) override {
    absl::StatusOr<int64_t> answer;
    {
      absl::MutexLock lock(&mutex_);
      int64_t& stored = stored_[{job_id, attempt}];
      answer = stored;
      for (v1::WorkerReport& report : reports) {
        if (report.sequence() <= stored) {
          ++duplicates_;
          continue;
        }
        if (report.sequence() != stored + 1) {
          answer = absl::FailedPreconditionError("a sequence is left out");
          break;
        }
        answer = ++stored;
        reports_.push_back(std::move(report));
      }
      if (silent_) return;
    }
    done(answer);
  }

  void WorkerExited(const std::string& job_id, int32_t attempt, const WorkerExit& exit) override {
    ApplyReports(job_id, attempt, exit.unsent, [](const absl::StatusOr<int64_t>&) {});
    if (exit.on_stored) exit.on_stored();
    absl::MutexLock lock(&mutex_);
    exits_.push_back(exit);
  }

  // Stores and does not acknowledge, as a daemon that is about to crash.
  void SetSilent(bool silent) {
    absl::MutexLock lock(&mutex_);
    silent_ = silent;
  }

  // The first exit; a failure's description when none comes.
  WorkerExit WaitForExit() {
    absl::MutexLock lock(&mutex_);
    const auto ready = [this] {
      mutex_.AssertReaderHeld();
      return !exits_.empty();
    };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&ready), absl::Seconds(30))) {
      return {.description = "no exit was reported within 30 s"};
    }
    return exits_.front();
  }

  // The first `count` reports, fewer when they do not come.
  std::vector<v1::WorkerReport> WaitForReports(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto ready = [&] {
      mutex_.AssertReaderHeld();
      return reports_.size() >= count;
    };
    mutex_.AwaitWithTimeout(absl::Condition(&ready), absl::Seconds(30));
    return reports_;
  }

  // Begins anew; what is stored of an attempt stays so.
  void Forget() {
    absl::MutexLock lock(&mutex_);
    reports_.clear();
    exits_.clear();
  }

  std::vector<WorkerExit> exits() {
    absl::MutexLock lock(&mutex_);
    return exits_;
  }
  int duplicates() {
    absl::MutexLock lock(&mutex_);
    return duplicates_;
  }

 private:
  absl::Mutex mutex_;
  bool silent_ ABSL_GUARDED_BY(mutex_) = false;
  int duplicates_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::pair<std::string, int32_t>, int64_t> stored_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::WorkerReport> reports_ ABSL_GUARDED_BY(mutex_);
  std::vector<WorkerExit> exits_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace millrace

#endif  // MILLRACE_TESTS_SERVER_WORKER_RECORDING_SINK_H_
