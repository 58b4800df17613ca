#include "server/worker/report_buffer.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/time/clock.h"
#include "google/protobuf/util/time_util.h"

namespace millrace {
namespace {

v1::WorkerReport EmptyReport(int64_t sequence) {
  v1::WorkerReport report;
  report.set_sequence(sequence);
  return report;
}

bool MayGo(v1::WorkerReport::ReportCase kind) {
  return kind != v1::WorkerReport::kPrepared && kind != v1::WorkerReport::kEnded;
}

}  // namespace

void ReportBuffer::Add(v1::WorkerReport report) {
  absl::MutexLock lock(&mutex_);
  report.set_sequence(++last_sequence_);
  *report.mutable_time() =
      google::protobuf::util::TimeUtil::NanosecondsToTimestamp(absl::ToUnixNanos(absl::Now()));
  reports_.push_back(std::move(report));
  if (reports_.size() <= capacity_) return;
  LetGo([](v1::WorkerReport::ReportCase kind) { return kind == v1::WorkerReport::kStep; });
  // Well below, so that the next time is far away.
  if (reports_.size() > capacity_ - capacity_ / 4) LetGo(MayGo);
}

void ReportBuffer::LetGo(bool (*may_go)(v1::WorkerReport::ReportCase kind)) {
  std::map<v1::WorkerReport::ReportCase, int64_t> newest;
  for (const v1::WorkerReport& report : reports_) newest[report.report_case()] = report.sequence();
  std::map<v1::WorkerReport::ReportCase, bool> let_go;
  std::deque<v1::WorkerReport> kept;
  for (v1::WorkerReport& report : reports_) {
    const v1::WorkerReport::ReportCase kind = report.report_case();
    // The newest stays, so that progress is always known.
    if (may_go(kind) && report.sequence() != newest[kind]) {
      bool& goes = let_go[kind];
      goes = !goes;
      if (goes) continue;
    }
    kept.push_back(std::move(report));
  }
  reports_ = std::move(kept);
}

void ReportBuffer::Acknowledge(int64_t sequence) {
  absl::MutexLock lock(&mutex_);
  acknowledged_ = std::max(acknowledged_, std::min(sequence, last_sequence_));
  while (!reports_.empty() && reports_.front().sequence() <= acknowledged_) reports_.pop_front();
}

bool ReportBuffer::WaitForNext(int64_t sequence, v1::WorkerReport* report) {
  absl::MutexLock lock(&mutex_);
  const auto ready = [&] {
    mutex_.AssertReaderHeld();
    return interrupted_ || HasAfter(std::max(sequence, acknowledged_));
  };
  mutex_.Await(absl::Condition(&ready));
  if (interrupted_) return false;
  const int64_t wanted = std::max(sequence, acknowledged_) + 1;
  const auto found = std::lower_bound(
      reports_.begin(), reports_.end(), wanted,
      [](const v1::WorkerReport& item, int64_t value) { return item.sequence() < value; });
  if (found != reports_.end() && found->sequence() == wanted) {
    *report = *found;
  } else {
    *report = EmptyReport(wanted);
  }
  return true;
}

void ReportBuffer::Interrupt() {
  absl::MutexLock lock(&mutex_);
  interrupted_ = true;
}

void ReportBuffer::Resume() {
  absl::MutexLock lock(&mutex_);
  interrupted_ = false;
}

bool ReportBuffer::WaitUntilAllAcknowledged(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  const auto done = [&] {
    mutex_.AssertReaderHeld();
    return acknowledged_ == last_sequence_;
  };
  return mutex_.AwaitWithTimeout(absl::Condition(&done), timeout);
}

std::vector<v1::WorkerReport> ReportBuffer::Unacknowledged() const {
  absl::MutexLock lock(&mutex_);
  std::vector<v1::WorkerReport> reports;
  int64_t sequence = acknowledged_;
  for (const v1::WorkerReport& report : reports_) {
    while (++sequence < report.sequence()) reports.push_back(EmptyReport(sequence));
    reports.push_back(report);
  }
  return reports;
}

}  // namespace millrace
