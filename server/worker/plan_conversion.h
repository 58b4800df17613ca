// A job's plan as the engine makes it and as the API has it.
#ifndef MILLRACE_SERVER_WORKER_PLAN_CONVERSION_H_
#define MILLRACE_SERVER_WORKER_PLAN_CONVERSION_H_

#include "engine/train/job_plan.h"
#include "millrace/v1/plan.pb.h"

namespace millrace {

// Without the trace, which is no part of the message.
v1::JobPlan ToProto(const JobPlan& plan);
v1::StepStalls ToProto(const StepStalls& stalls);

}  // namespace millrace

#endif  // MILLRACE_SERVER_WORKER_PLAN_CONVERSION_H_
