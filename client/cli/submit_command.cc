#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/human.h"
#include "client/cli/job_commands.h"
#include "client/cli/job_file_argument.h"
#include "client/cli/plan_view.h"
#include "proto/job_file/job_file.h"

namespace millrace {
namespace {

// A job file for a run without a daemon names a path; a daemon cannot see the files of its clients.
absl::Status CheckDataset(const v1::JobSpec& spec) {
  const std::string& train = spec.data().train();
  if (train.empty() || absl::StartsWith(train, "datasets/")) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("data.train: \"", Sanitize(train, false),
                   "\" is not a dataset of the daemon; upload it (`millrace datasets upload ID ",
                   Sanitize(train, false), "`) and write `train: datasets/ID`"));
}

// Unique, so that a call that is tried again never makes a second job.
std::string NewRequestId() {
  std::random_device random;
  return absl::StrFormat("%08x%08x%08x%08x", random(), random(), random(), random());
}

}  // namespace

absl::StatusOr<int> Submit(const Session& session, const SubmitArgs& args) {
  absl::StatusOr<v1::JobSpec> spec = ReadJobFile(session, args.file);
  if (!spec.ok()) return spec.status();
  absl::Status status = CheckDataset(*spec);
  if (!status.ok()) return status;

  v1::CreateJobRequest request;
  request.set_job_id(args.id);
  *request.mutable_spec() = *std::move(spec);
  request.set_request_id(NewRequestId());
  request.set_validate_only(args.dry_run);
  absl::StatusOr<v1::Job> job = session.connection->Call(
      session.connection->jobs(), &v1::JobService::StubInterface::CreateJob, request);
  if (!job.ok()) return job.status();

  if (args.dry_run) {
    if (session.format == OutputFormat::kYaml) {
      session.out() << FormatJobFile(job->spec());
    } else if (!session.Print(*job)) {
      session.out() << args.file << " is valid; nothing was submitted" << std::endl;
      if (job->has_plan()) session.out() << FormatPlan(session.terminal(), job->plan());
    }
    return 0;
  }
  std::string id = ResourceId(job->name());
  if (args.watch) {
    session.Note(absl::StrCat("submitted ", job->name()));
    return Watch(session, {.job = id});
  }
  if (!session.Print(*job)) {
    session.out() << job->name() << " " << v1::Job::State_Name(job->state());
    if (job->queue_position() > 0) session.out() << ", place " << job->queue_position();
    session.out() << "\nwatch it: millrace watch " << id << std::endl;
  }
  return 0;
}

}  // namespace millrace
