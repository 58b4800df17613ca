// How a protobuf field is named and written in a job file.
#ifndef MILLRACE_PROTO_JOB_FILE_FIELDS_H_
#define MILLRACE_PROTO_JOB_FILE_FIELDS_H_

#include <string>

#include "absl/strings/match.h"
#include "google/protobuf/descriptor.h"

namespace millrace {

// Whether the field is written as a size with a unit, and without `_bytes` in its name.
inline bool IsByteSize(const google::protobuf::FieldDescriptor& field) {
  return field.cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_INT64 &&
         absl::EndsWith(field.name(), "_bytes");
}

inline std::string YamlKey(const google::protobuf::FieldDescriptor& field) {
  constexpr size_t kEnding = sizeof("_bytes") - 1;
  return IsByteSize(field) ? field.name().substr(0, field.name().size() - kEnding) : field.name();
}

}  // namespace millrace

#endif  // MILLRACE_PROTO_JOB_FILE_FIELDS_H_
