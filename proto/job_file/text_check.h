// What text must be before it is read as YAML.
#ifndef MILLRACE_PROTO_JOB_FILE_TEXT_CHECK_H_
#define MILLRACE_PROTO_JOB_FILE_TEXT_CHECK_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace millrace {

// InvalidArgument unless `text` is UTF-8, at most 1 MiB, and without binary content; the message
// has the form `line N: …`.
absl::Status CheckText(absl::string_view text);

bool IsUtf8(absl::string_view text);

// The longest beginning of at most `max_bytes` that does not cut a character in two.
absl::string_view TruncateUtf8(absl::string_view text, size_t max_bytes);

}  // namespace millrace

#endif  // MILLRACE_PROTO_JOB_FILE_TEXT_CHECK_H_
