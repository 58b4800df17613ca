// Writes what becomes of jobs to the daemon's log, and passes everything on to the metrics.
#ifndef MILLRACE_SERVER_JOB_LOG_H_
#define MILLRACE_SERVER_JOB_LOG_H_

#include <string>

#include "server/jobs/job_observer.h"

namespace millrace {

class JobLog : public JobObserver {
 public:
  // `next` outlives it.
  explicit JobLog(JobObserver* next) : next_(next) {}

  void OnJobEvent(const v1::Job& job, const v1::JobEvent* event) override;
  void OnJobDeleted(const std::string& job_id) override;

 private:
  JobObserver* const next_;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_JOB_LOG_H_
