#include "server/base/listen_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace millrace {
namespace {

bool IsLoopbackHost(const std::string& host) {
  if (host == "localhost" || host == "::1") return true;
  in_addr address;
  return inet_pton(AF_INET, host.c_str(), &address) == 1 &&
         (ntohl(address.s_addr) >> 24) == IN_LOOPBACKNET;
}

bool Split(absl::string_view address, HostAndPort* parts) {
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos || colon == 0) return false;
  absl::string_view host = address.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[") != absl::ConsumeSuffix(&host, "]")) return false;
  parts->host = std::string(host);
  return absl::SimpleAtoi(address.substr(colon + 1), &parts->port) && parts->port >= 0 &&
         parts->port <= 65535;
}

// The error of binding there; 0 when it works.
int TryToBind(const HostAndPort& parts) {
  sockaddr_storage storage;
  std::memset(&storage, 0, sizeof(storage));
  socklen_t size = sizeof(sockaddr_in);
  if (parts.host == "::1") {
    auto* address = reinterpret_cast<sockaddr_in6*>(&storage);
    address->sin6_family = AF_INET6;
    address->sin6_addr = in6addr_loopback;
    address->sin6_port = htons(static_cast<uint16_t>(parts.port));
    size = sizeof(sockaddr_in6);
  } else {
    auto* address = reinterpret_cast<sockaddr_in*>(&storage);
    address->sin_family = AF_INET;
    address->sin_port = htons(static_cast<uint16_t>(parts.port));
    const std::string host = parts.host == "localhost" ? "127.0.0.1" : parts.host;
    inet_pton(AF_INET, host.c_str(), &address->sin_addr);
  }
  const int fd = socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const int error = bind(fd, reinterpret_cast<sockaddr*>(&storage), size) == 0 ? 0 : errno;
  close(fd);
  return error;
}

}  // namespace

absl::Status CheckLoopbackAddress(absl::string_view key, absl::string_view address) {
  HostAndPort parts;
  if (!Split(address, &parts)) {
    return absl::InvalidArgumentError(absl::StrCat(
        key, ": '", address, "' is not of the form host:port, such as 127.0.0.1:7473"));
  }
  if (!IsLoopbackHost(parts.host)) {
    return absl::InvalidArgumentError(absl::StrCat(
        key, ": '", address,
        "' is not a loopback address; Millrace does not authenticate or encrypt yet, so on any "
        "other address everybody on the network could run jobs here. Use 127.0.0.1:",
        parts.port, ", and reach it from elsewhere through an SSH tunnel"));
  }
  return absl::OkStatus();
}

std::string WithPort(absl::string_view address, int port) {
  return absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
}

HostAndPort SplitAddress(absl::string_view address) {
  HostAndPort parts;
  Split(address, &parts);
  return parts;
}

absl::Status CannotListen(absl::string_view key, absl::string_view address) {
  const int error = TryToBind(SplitAddress(address));
  std::string cause = error == 0 ? "unknown cause" : std::strerror(error);
  std::string fix = "";
  if (error == EADDRINUSE) {
    cause = "address in use";
    fix = "; is another daemon running? Stop it or choose another port";
  }
  return absl::UnavailableError(
      absl::StrCat(key, ": cannot listen on ", address, ": ", cause, fix));
}

}  // namespace millrace
