// The log of a worker, for people: lines as `[2026-12-01T12:00:00.000Z] [info] text`, on standard
// error.
#ifndef MILLRACE_SERVER_WORKER_WORKER_LOG_H_
#define MILLRACE_SERVER_WORKER_WORKER_LOG_H_

#include <spdlog/logger.h>

#include <cstdint>
#include <memory>

namespace millrace {

// A log file grows no further than this, whatever happens; 1 MiB more is for errors alone.
inline constexpr int64_t kMostLogBytes = int64_t{64} << 20;

// Writes to `fd`, which stays open as long as the log; when that is a file, what it holds already
// counts. Safe for use by several threads.
std::shared_ptr<spdlog::logger> MakeWorkerLog(int fd, int64_t most_bytes = kMostLogBytes);

}  // namespace millrace

#endif  // MILLRACE_SERVER_WORKER_WORKER_LOG_H_
