// `millrace info`.
#ifndef MILLRACE_CLIENT_CLI_NODE_COMMAND_H_
#define MILLRACE_CLIENT_CLI_NODE_COMMAND_H_

#include "absl/status/statusor.h"
#include "client/cli/session.h"

namespace millrace {

absl::StatusOr<int> ShowNode(const Session& session);

}  // namespace millrace

#endif  // MILLRACE_CLIENT_CLI_NODE_COMMAND_H_
