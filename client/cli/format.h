// Messages for scripts.
#ifndef MILLRACE_CLIENT_CLI_FORMAT_H_
#define MILLRACE_CLIENT_CLI_FORMAT_H_

#include <string>

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace millrace {

enum class OutputFormat { kTable, kJson, kYaml };

// Proto JSON with field names as in the .proto files, on one line that ends in a newline. As proto
// JSON has it, 64-bit integers are strings. Fields that are zero are written too.
std::string ToJsonLine(const google::protobuf::Message& message);

// The same content as a YAML document.
std::string ToYaml(const google::protobuf::Message& message);

// {"error": {"code": "NOT_FOUND", "reason": "JOB_NOT_FOUND", "message": "…"}}
std::string ErrorJsonLine(const absl::Status& status);

}  // namespace millrace

#endif  // MILLRACE_CLIENT_CLI_FORMAT_H_
