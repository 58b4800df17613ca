// Reads YAML into any protobuf message made of scalars, messages, lists of these, enums and
// google.protobuf.Struct, by reflection. See job_file.h for the rules.
#ifndef MILLRACE_PROTO_JOB_FILE_MESSAGE_READER_H_
#define MILLRACE_PROTO_JOB_FILE_MESSAGE_READER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"

namespace millrace {

// Paths of JSON files in `text` are relative to `folder`. Merges `text` into `message`, which
// should be empty. InvalidArgument with one line a problem; `message` then holds what could be
// read.
absl::Status ReadYamlMessage(absl::string_view text, const std::string& folder,
                             google::protobuf::Message* message);

}  // namespace millrace

#endif  // MILLRACE_PROTO_JOB_FILE_MESSAGE_READER_H_
