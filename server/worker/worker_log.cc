#include "server/worker/worker_log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace millrace {
namespace {

constexpr int64_t kErrorReserveBytes = 1 << 20;

class CappedSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  CappedSink(int fd, int64_t most_bytes) : fd_(fd), most_bytes_(most_bytes) {
    struct stat status;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
      is_file_ = true;
      size_bytes_ = status.st_size;
    }
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    const int64_t size = static_cast<int64_t>(line.size());
    const int64_t most =
        most_bytes_ + (message.level >= spdlog::level::err ? kErrorReserveBytes : 0);
    if (!is_file_ || size_bytes_ + size <= most) {
      Write({line.data(), line.size()});
    } else if (!full_) {
      full_ = true;
      Write(absl::StrCat("[warning] this log is full at ", most_bytes_,
                         " bytes; only errors are written from here on\n"));
    }
  }

  void flush_() override {}

 private:
  void Write(absl::string_view text) {
    while (!text.empty()) {
      const ssize_t written = write(fd_, text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      // There is nobody to tell that the log cannot be written.
      if (written <= 0) return;
      size_bytes_ += written;
      text.remove_prefix(static_cast<size_t>(written));
    }
  }

  const int fd_;
  const int64_t most_bytes_;
  bool is_file_ = false;
  bool full_ = false;
  int64_t size_bytes_ = 0;
};

}  // namespace

std::shared_ptr<spdlog::logger> MakeWorkerLog(int fd, int64_t most_bytes) {
  auto log =
      std::make_shared<spdlog::logger>("worker", std::make_shared<CappedSink>(fd, most_bytes));
  log->set_formatter(std::make_unique<spdlog::pattern_formatter>("[%Y-%m-%dT%H:%M:%S.%eZ] [%l] %v",
                                                                 spdlog::pattern_time_type::utc));
  return log;
}

}  // namespace millrace
