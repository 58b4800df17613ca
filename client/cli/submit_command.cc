#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "client/cli/human.h"
#include "client/cli/job_commands.h"
#include "proto/job_file/job_file.h"

namespace millrace {
namespace {

// More than a job file may have; the reader says so.
constexpr std::streamsize kMaxFileBytes = 2 << 20;

absl::StatusOr<std::string> ReadAll(std::istream& in, const std::string& name) {
  std::string text(kMaxFileBytes, '\0');
  in.read(text.data(), kMaxFileBytes);
  if (in.bad() || (in.fail() && !in.eof())) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read ", name));
  }
  text.resize(static_cast<size_t>(in.gcount()));
  return text;
}

absl::StatusOr<v1::JobSpec> ReadJobFile(const Session& session, const std::string& file) {
  absl::StatusOr<std::string> text;
  if (file == "-") {
    text = ReadAll(*session.environment.in, "standard input");
  } else {
    std::ifstream in(file, std::ios::binary);
    if (!in) {
      return absl::NotFoundError(absl::StrCat("there is no job file ", file, " that can be read"));
    }
    text = ReadAll(in, file);
  }
  if (!text.ok()) return text.status();
  absl::StatusOr<v1::JobSpec> spec =
      ParseJobFile(*text, file == "-" ? "." : std::filesystem::path(file).parent_path().string());
  if (!spec.ok()) {
    std::string prefix = absl::StrCat(file == "-" ? "standard input" : file, ": ");
    return absl::InvalidArgumentError(absl::StrCat(
        prefix, absl::StrReplaceAll(spec.status().message(), {{"\n", "\n" + prefix}})));
  }
  return spec;
}

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
