// How a job would run, asked without running it.
#ifndef MILLRACE_SERVER_JOBS_JOB_PLANNER_H_
#define MILLRACE_SERVER_JOBS_JOB_PLANNER_H_

#include "absl/status/statusor.h"
#include "millrace/v1/job_service.pb.h"

namespace millrace {

class JobPlanner {
 public:
  virtual ~JobPlanner() = default;

  // PlanJob of JobService, which documents its errors. Changes nothing. May take seconds. Any
  // thread, several at once.
  virtual absl::StatusOr<v1::PlanJobResponse> Plan(const v1::PlanJobRequest& request) = 0;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_JOBS_JOB_PLANNER_H_
