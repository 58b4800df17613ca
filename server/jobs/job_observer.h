// Who wants to know of what was committed: metrics.
#ifndef MILLRACE_SERVER_JOBS_JOB_OBSERVER_H_
#define MILLRACE_SERVER_JOBS_JOB_OBSERVER_H_

#include "millrace/v1/job_service.pb.h"

namespace millrace {

class JobObserver {
 public:
  virtual ~JobObserver() = default;

  // One event, after its commit, in order within a job; `job` is the job after the commit. Must be
  // quick: the store's writer waits. At start, called with no event for every job not ended.
  virtual void OnJobEvent(const v1::Job& job, const v1::JobEvent* event) = 0;

  // The job was deleted.
  virtual void OnJobDeleted(const std::string& job_id) = 0;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_JOBS_JOB_OBSERVER_H_
