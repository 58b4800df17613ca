// The daemon: `millraced --data_dir DIR`. Prints one line once it serves; its log goes to standard
// error. SIGTERM and SIGINT drain it, a second one ends it at once. Exit codes: 0 ended as asked,
// 1 could not start, 2 wrong flags or settings.
#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/base/version.h"
#include "server/config.h"
#include "server/daemon.h"

namespace millrace {
namespace {

void SetUpLog(const std::string& level) {
  auto logger = std::make_shared<spdlog::logger>("millraced",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  logger->set_level(spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

// Where a connection finds no descriptor left, gRPC gives up listening for good.
void AllowManyDescriptors() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Whether one of `signals` has come.
bool HasCome(const sigset_t& signals) {
  const timespec at_once = {0, 0};
  return sigtimedwait(&signals, nullptr, &at_once) > 0;
}

void Drain(Daemon& daemon, absl::Duration timeout, const sigset_t& signals) {
  spdlog::info("stopping: running jobs get {} to save", absl::FormatDuration(timeout));
  daemon.BeginDrain();
  const absl::Time deadline = absl::Now() + timeout;
  while (!daemon.WaitUntilIdle(absl::Milliseconds(50))) {
    if (HasCome(signals)) {
      spdlog::warn("a second signal: ending at once; workers go on until they have saved");
      return;
    }
    if (absl::Now() >= deadline) {
      spdlog::warn("drain_timeout has passed; workers go on until they have saved");
      return;
    }
  }
}

int Main(const std::vector<std::string>& arguments) {
  // Before any thread is there, so that all inherit it and only sigwait() below takes them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  AllowManyDescriptors();
  // Errors that matter come back as statuses; gRPC would print them a second time.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);

  const absl::StatusOr<ParsedCommandLine> parsed = ParseCommandLine(arguments);
  if (!parsed.ok()) {
    std::fprintf(stderr, "millraced: %s\n", std::string(parsed.status().message()).c_str());
    return 2;
  }
  if (!parsed->print_and_end.empty()) {
    std::fputs(parsed->print_and_end.c_str(), stdout);
    return 0;
  }
  const Config& config = parsed->config;
  SetUpLog(config.log_level);
  absl::StatusOr<std::unique_ptr<Daemon>> daemon = Daemon::Start(config);
  if (!daemon.ok()) {
    std::fprintf(stderr, "millraced: %s\n", std::string(daemon.status().message()).c_str());
    return 1;
  }
  const std::string http = (*daemon)->http_address();
  std::printf("millraced %s serves gRPC on %s%s, data in %s (process %d)\n", kVersion,
              (*daemon)->grpc_address().c_str(),
              http.empty() ? "" : absl::StrCat(" and HTTP on ", http).c_str(),
              config.data_dir.c_str(), static_cast<int>(getpid()));
  std::fflush(stdout);

  int which;
  sigwait(&signals, &which);
  Drain(**daemon, config.drain_timeout, signals);
  *daemon = nullptr;
  spdlog::info("ended");
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  return millrace::Main(std::vector<std::string>(argv + 1, argv + argc));
}
