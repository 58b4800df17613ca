// The service's figures: how soon a submitted job trains, how far watching lags behind the worker,
// and what an idle daemon holds. Prints one JSON object.
//
//   bazel run -c opt //tests/bench/service:service_bench
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/lib/watch.h"
#include "tests/e2e/system.h"

namespace millrace {
namespace {

constexpr int kSubmissions = 10;

int64_t ResidentBytes(pid_t pid) {
  std::string statm = ReadWholeFile(absl::StrCat("/proc/", pid, "/statm"));
  size_t begin = statm.find(' ') + 1;
  int64_t pages = 0;
  if (!absl::SimpleAtoi(statm.substr(begin, statm.find(' ', begin) - begin), &pages)) return 0;
  return pages * sysconf(_SC_PAGESIZE);
}

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
}

absl::Time TimeOf(const v1::JobEvent& event) {
  return absl::FromUnixSeconds(event.time().seconds()) + absl::Nanoseconds(event.time().nanos());
}

int Main() {
  System system;
  system.StartDaemon();
  if (system.address() == "127.0.0.1:0") return 1;
  int64_t resident_after_start = ResidentBytes(system.daemon().pid());
  system.UploadText();
  Connection::Options options;
  options.address = system.address();
  std::unique_ptr<Connection> connection = *Connection::Open(options);

  std::vector<double> first_step_seconds;
  std::vector<double> lag_ms;
  for (int i = 0; i < kSubmissions; ++i) {
    std::string id = absl::StrCat("bench-", i);
    absl::Time start = absl::Now();
    // With the command's own start, as a person has it.
    system.Submit(id);
    bool live = false;
    auto job = WatchJob(*connection, "jobs/" + id, {}, [&](const v1::JobEvent& event) {
      absl::Time now = absl::Now();
      if (event.step().step() == 1)
        first_step_seconds.push_back(absl::ToDoubleSeconds(now - start));
      // What had happened before watching began came late for no fault of the service.
      live = live || event.has_step();
      if (live) lag_ms.push_back(absl::ToDoubleMilliseconds(now - TimeOf(event)));
      return true;
    });
    if (!job.ok() || job->state() != v1::Job::SUCCEEDED) return 1;
  }
  int64_t resident_after_jobs = ResidentBytes(system.daemon().pid());
  std::printf(
      "%s\n",
      absl::StrFormat(
          R"({"submissions": %d, "submit_to_first_step_seconds": {"median": %.3f, "max": %.3f}, )"
          R"("watch_lag_ms": {"events": %d, "median": %.2f, "p99": %.2f, "max": %.2f}, )"
          R"("daemon_resident_bytes": {"after_start": %d, "after_jobs": %d}})",
          kSubmissions, Quantile(first_step_seconds, 0.5), Quantile(first_step_seconds, 1),
          lag_ms.size(), Quantile(lag_ms, 0.5), Quantile(lag_ms, 0.99), Quantile(lag_ms, 1),
          resident_after_start, resident_after_jobs)
          .c_str());
  return 0;
}

}  // namespace
}  // namespace millrace

int main() { return millrace::Main(); }
