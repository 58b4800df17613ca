// What a client may call things that become files of this node.
#ifndef MILLRACE_SERVER_BLOBS_BLOB_NAMES_H_
#define MILLRACE_SERVER_BLOBS_BLOB_NAMES_H_

#include <string>

#include "absl/strings/string_view.h"

namespace millrace {

// Empty when `path` is relative, `/` separated, printable, at most 1024 bytes with parts of at most
// 255, and without empty, `.` or `..` parts, so that it cannot lead out of the folder it is joined
// to; else what is wrong with it.
std::string ProblemWithRelativePath(absl::string_view path);

// Empty when `sha256` is 64 lower-case hexadecimal digits; else what is wrong with it.
std::string ProblemWithSha256(absl::string_view sha256);

}  // namespace millrace

#endif  // MILLRACE_SERVER_BLOBS_BLOB_NAMES_H_
