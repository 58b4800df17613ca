// Proves a schedule safe before it runs.
#ifndef MILLRACE_ENGINE_SCHEDULE_VERIFIER_H_
#define MILLRACE_ENGINE_SCHEDULE_VERIFIER_H_

#include <cstddef>

#include "absl/status/status.h"
#include "engine/schedule/schedule.h"

namespace millrace {

// OK when, whatever the timing of the streams,
// - no instruction reads what was not written, or starts before the write that it depends on is
// done;
// - none writes what an earlier one may still read or write, in the same buffer or in another that
//   lies at the same addresses, nor what it uses itself besides;
// - every operand is among what its instruction says it reads or writes, and fits its buffer; every
//   buffer fits the arena, and the arena the budget.
// Otherwise INTERNAL (RESOURCE_EXHAUSTED for the budget), naming instruction and buffer. It trusts
// nothing of how the schedule was built: only streams, waits, operands and addresses.
absl::Status Verify(const Schedule& schedule, size_t device_budget_bytes);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_VERIFIER_H_
