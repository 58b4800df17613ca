#include "server/worker/socket_address.h"

#include <fcntl.h>
#include <sys/un.h>

#include <cerrno>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"

namespace millrace {

absl::StatusOr<SocketAddress> SocketAddress::Make(const std::string& path) {
  SocketAddress result;
  if (path.size() < sizeof(sockaddr_un::sun_path)) {
    result.address_ = absl::StrCat("unix:", path);
    return result;
  }
  const std::filesystem::path parts(path);
  const std::string folder = parts.parent_path().string();
  result.folder_ = UniqueFd(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!result.folder_.valid()) return ErrnoToStatus(errno, "open folder", folder);
  result.address_ =
      absl::StrCat("unix:/proc/self/fd/", result.folder_.get(), "/", parts.filename().string());
  return result;
}

}  // namespace millrace
