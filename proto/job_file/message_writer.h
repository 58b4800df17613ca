// Writes a protobuf message as the YAML that message_reader.h reads.
#ifndef MILLRACE_PROTO_JOB_FILE_MESSAGE_WRITER_H_
#define MILLRACE_PROTO_JOB_FILE_MESSAGE_WRITER_H_

#include <string>

#include "google/protobuf/message.h"

namespace millrace {

// Ends in a newline. An empty message is `{}`.
std::string WriteYamlMessage(const google::protobuf::Message& message);

}  // namespace millrace

#endif  // MILLRACE_PROTO_JOB_FILE_MESSAGE_WRITER_H_
