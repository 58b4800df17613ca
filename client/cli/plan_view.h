// How a plan looks to a person.
#ifndef MILLRACE_CLIENT_CLI_PLAN_VIEW_H_
#define MILLRACE_CLIENT_CLI_PLAN_VIEW_H_

#include <string>

#include "client/cli/table.h"
#include "client/cli/terminal.h"
#include "millrace/v1/plan.pb.h"

namespace millrace {

// Its main lines: speed, what bounds it, how the device's memory is used.
void AddPlanFields(const v1::JobPlan& plan, Fields* fields);

// All of it: the answer, memory by purpose on both sides, the choices with what others would cost,
// and what the figures rest on. Ends in a newline.
std::string FormatPlan(const Terminal& terminal, const v1::JobPlan& plan);

// `weights 0.3s, data 0.1s`, without what is nothing; empty when all of it is.
std::string StallsText(const v1::StepStalls& stalls);

}  // namespace millrace

#endif  // MILLRACE_CLIENT_CLI_PLAN_VIEW_H_
