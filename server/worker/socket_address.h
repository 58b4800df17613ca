// The gRPC address of a Unix socket, however long its path is.
#ifndef MILLRACE_SERVER_WORKER_SOCKET_ADDRESS_H_
#define MILLRACE_SERVER_WORKER_SOCKET_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/worker/unique_fd.h"

namespace millrace {

// A path of 108 bytes or more does not fit the system's address type. It is then reached through
// an open file of its folder, which must stay open as long as the address is used.
class SocketAddress {
 public:
  // The socket itself need not be there yet; its folder must be.
  static absl::StatusOr<SocketAddress> Make(const std::string& path);

  // `unix:…`, valid in this process only.
  const std::string& address() const { return address_; }

 private:
  std::string address_;
  UniqueFd folder_;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_WORKER_SOCKET_ADDRESS_H_
