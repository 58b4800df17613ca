// Turns what happens to jobs into metrics.
#ifndef MILLRACE_SERVER_OBSERVE_JOB_METRICS_H_
#define MILLRACE_SERVER_OBSERVE_JOB_METRICS_H_

#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/jobs/job_observer.h"
#include "server/observe/metrics.h"

namespace millrace {

class JobMetrics : public JobObserver {
 public:
  // `metrics` outlives it, and is read no more once it is gone.
  explicit JobMetrics(Metrics* metrics);

  void OnJobEvent(const v1::Job& job, const v1::JobEvent* event) override;
  void OnJobDeleted(const std::string& job_id) override;

 private:
  void OnStateChange(const std::string& id, const v1::Job& job, const v1::JobEvent& event);
  void OnStep(const std::string& id, const v1::Job& job, double time, const v1::StepMetrics& step);
  void OnQueued(const std::string& id, double time);
  // The time since which it waited; 0 when it did not.
  double OnLeftQueue(const std::string& id);

  Metrics* const metrics_;
  absl::Mutex mutex_;
  // Unix time since which each waiting job waits.
  std::map<std::string, double> queued_since_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_OBSERVE_JOB_METRICS_H_
