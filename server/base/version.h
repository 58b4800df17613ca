// The version of Millrace.
#ifndef MILLRACE_SERVER_BASE_VERSION_H_
#define MILLRACE_SERVER_BASE_VERSION_H_

namespace millrace {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace millrace

#endif  // MILLRACE_SERVER_BASE_VERSION_H_
