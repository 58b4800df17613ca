// A model as commands name it: `models/a`, `jobs/a`, `jobs/a/checkpoints/200`, or `a` alone, which
// is the job of that name or else the model.
#ifndef MILLRACE_CLIENT_CLI_MODEL_ARGUMENT_H_
#define MILLRACE_CLIENT_CLI_MODEL_ARGUMENT_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace millrace {

// Calls `call` with the name that `argument` stands for; where that is a guess, with one after the
// other until one is found.
absl::Status WithModelName(const std::string& argument,
                           absl::FunctionRef<absl::Status(const std::string& name)> call);

}  // namespace millrace

#endif  // MILLRACE_CLIENT_CLI_MODEL_ARGUMENT_H_
