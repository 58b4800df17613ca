// What is wrong with one field of a job file.
#ifndef MILLRACE_ENGINE_BASE_FIELD_PROBLEM_H_
#define MILLRACE_ENGINE_BASE_FIELD_PROBLEM_H_

#include <string>

namespace millrace {

struct FieldProblem {
  std::string field;    // path in the job file: "train.tokens_per_step"
  std::string message;  // the value, what is wrong with it, and the fix
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_BASE_FIELD_PROBLEM_H_
