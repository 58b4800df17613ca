// Addresses to listen on, `host:port`.
#ifndef MILLRACE_SERVER_BASE_LISTEN_ADDRESS_H_
#define MILLRACE_SERVER_BASE_LISTEN_ADDRESS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace millrace {

// INVALID_ARGUMENT unless it is `host:port` where host is localhost, 127.x.y.z or [::1]. `key` is
// the setting's name, for the message.
absl::Status CheckLoopbackAddress(absl::string_view key, absl::string_view address);

// The address with another port.
std::string WithPort(absl::string_view address, int port);

// Host without brackets, and port, of an address that CheckLoopbackAddress accepts.
struct HostAndPort {
  std::string host;
  int port = 0;
};
HostAndPort SplitAddress(absl::string_view address);

// Why an attempt to listen there failed: UNAVAILABLE, naming key, address, cause and fix. Tries
// once more to learn the cause.
absl::Status CannotListen(absl::string_view key, absl::string_view address);

}  // namespace millrace

#endif  // MILLRACE_SERVER_BASE_LISTEN_ADDRESS_H_
