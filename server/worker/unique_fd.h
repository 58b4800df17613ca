// An open file descriptor that is closed with its owner.
#ifndef MILLRACE_SERVER_WORKER_UNIQUE_FD_H_
#define MILLRACE_SERVER_WORKER_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace millrace {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() {
    if (fd_ >= 0) close(fd_);
  }

  // Negative when there is none.
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_WORKER_UNIQUE_FD_H_
