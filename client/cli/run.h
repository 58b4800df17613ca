// The `millrace` command, without the process around it.
#ifndef MILLRACE_CLIENT_CLI_RUN_H_
#define MILLRACE_CLIENT_CLI_RUN_H_

#include <string>
#include <vector>

#include "client/cli/session.h"

namespace millrace {

// Runs one command (`arguments` without the program's name) and returns the exit code.
int RunCommand(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace millrace

#endif  // MILLRACE_CLIENT_CLI_RUN_H_
