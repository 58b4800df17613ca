// Takes millrace-worker's flags, and ends in the way that the name of its job says.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "proto/job_file/job_file.h"
#include "server/worker/job_lock.h"
#include "server/worker/unsent_reports.h"

int main(int argc, char** argv) {
  std::map<std::string, std::string> flags;
  for (int i = 1; i + 1 < argc; i += 2) flags[argv[i]] = argv[i + 1];
  const std::string folder = absl::StrCat(flags["--job_dir"], "/attempts/", flags["--attempt"]);
  millrace::JobLock lock = millrace::JobLock::Adopt(atoi(flags["--lock_fd"].c_str()));
  if (!lock.WriteOwner(getpid()).ok()) return 99;
  const auto text = millrace::ReadFile(folder + "/job.yaml");
  const auto spec = text.ok() ? millrace::ParseJobFile(*text) : text.status();
  if (!spec.ok()) return 98;
  const std::string& name = spec->name();

  fprintf(stderr, "[t] [info] training\n");
  if (name == "invalid") {
    fprintf(stderr, "[t] [error] train.steps: 0 is too few\n[t] [info] bye\n");
    return 3;
  }
  if (name == "abort") {
    fprintf(stderr, "terminate called after throwing an instance of 'std::bad_alloc'\n");
    abort();
  }
  if (name == "killed") raise(SIGKILL);
  if (name == "session") {
    printf("session %d of its own\n", getsid(0) == getpid());
    return 0;
  }
  if (name == "unsent") {
    millrace::v1::WorkerReport report;
    report.set_sequence(1);
    report.mutable_ended()->set_outcome(millrace::v1::WorkerReport::Ended::SUCCEEDED);
    return millrace::WriteUnsentReports(folder, {report}).ok() ? 0 : 97;
  }
  if (name == "stubborn") signal(SIGTERM, SIG_IGN);
  // "patient" and "stubborn" wait for a signal.
  while (true) pause();
}
