// What is wrong with one field of something that a person wrote (a job file, a config.json): one
// finding of a check that reports all it finds, not just the first.
#ifndef MILLRACE_ENGINE_BASE_FIELD_PROBLEM_H_
#define MILLRACE_ENGINE_BASE_FIELD_PROBLEM_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace millrace {

struct FieldProblem {
  std::string field;    // path from the root of what was checked: "train.tokens_per_step"
  std::string message;  // the value, what is wrong with it, and the fix
};

// OK when there are none, else INVALID_ARGUMENT: "field: message" of each, joined by "; ".
absl::Status StatusOf(const std::vector<FieldProblem>& problems);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_BASE_FIELD_PROBLEM_H_
