// Why a worker process that left no word of its own ended: from its exit status, the kernel's
// counters of processes killed for memory, and the last error in its log.
#ifndef MILLRACE_SERVER_WORKER_EXIT_REPORT_H_
#define MILLRACE_SERVER_WORKER_EXIT_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "server/jobs/worker_launcher.h"
#include "server/worker/worker_process.h"

namespace millrace {

// Processes that the kernel killed so far because memory ran out, in this system as a whole
// (`oom_kill` of /proc/vmstat; it counts limits of control groups too). 0 when it does not tell.
int64_t OutOfMemoryKills();

// The last line of a log that tells of an error; else, with `any_line`, the last line that is not
// empty; without the logger's own prefix, at most 500 bytes. Empty when there is none.
std::string LastError(const std::string& log_path, bool any_line);

// `kills` is how much OutOfMemoryKills() grew while the worker ran; `killed_by_us` says why the
// daemon sent SIGKILL, empty when it did not.
WorkerExit DescribeExit(const std::optional<WorkerProcess::ExitStatus>& status,
                        const std::string& log_path, int64_t kills,
                        const std::string& killed_by_us);

}  // namespace millrace

#endif  // MILLRACE_SERVER_WORKER_EXIT_REPORT_H_
