#include "client/cli/job_commands.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/human.h"
#include "client/cli/plan_view.h"
#include "client/cli/table.h"
#include "client/cli/watch_view.h"
#include "client/lib/watch.h"
#include "proto/job_file/job_file.h"

namespace millrace {
namespace {

constexpr int kPageSize = 200;

std::string Progress(const v1::Job& job) {
  int64_t total = job.progress().total_steps();
  if (total <= 0) total = job.spec().train().steps();
  int64_t step = job.progress().last_step().step();
  if (total <= 0) return "-";
  return absl::StrFormat("%d/%d %s", step, total,
                         HumanPercent(static_cast<double>(step) / static_cast<double>(total)));
}

std::string Remaining(const v1::Job& job) {
  return job.state() == v1::Job::RUNNING && job.progress().has_remaining()
             ? HumanDuration(FromProto(job.progress().remaining()))
             : "-";
}

std::string Loss(const v1::Job& job) {
  return job.progress().has_last_step() ? HumanLoss(job.progress().last_step().loss()) : "-";
}

absl::StatusOr<v1::Job::State> ParseState(const std::string& text) {
  v1::Job::State state;
  if (v1::Job::State_Parse(absl::AsciiStrToUpper(text), &state) &&
      state != v1::Job::STATE_UNSPECIFIED) {
    return state;
  }
  std::vector<std::string> names;
  for (int i = 1; i < v1::Job::State_descriptor()->value_count(); ++i) {
    names.push_back(v1::Job::State_descriptor()->value(i)->name());
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--state: \"", text, "\" is none of ", absl::StrJoin(names, ", ")));
}

// One of the methods that take a name and give the job back.
template <typename Request>
absl::StatusOr<v1::Job> CallWithName(const Session& session, const std::string& job,
                                     grpc::Status (v1::JobService::StubInterface::*method)(
                                         grpc::ClientContext*, const Request&, v1::Job*)) {
  Request request;
  request.set_name(ResourceName("jobs", job));
  return session.connection->Call(session.connection->jobs(), method, request);
}

void PrintState(const Session& session, const v1::Job& job) {
  if (session.Print(job)) return;
  session.out() << job.name() << " " << StateText(job.state(), job.reason(), job.message())
                << std::endl;
}

// Follows the job until `wanted`, or until it has ended.
absl::StatusOr<v1::Job> WaitFor(const Session& session, const v1::Job& job, v1::Job::State wanted) {
  if (job.state() == wanted || HasEnded(job.state())) return job;
  WatchOptions options;
  options.after_sequence = job.last_sequence();
  return WatchJob(*session.connection, job.name(), options, [&](const v1::JobEvent& event) {
    return !event.has_state_change() || event.state_change().to() != wanted;
  });
}

}  // namespace

absl::StatusOr<int> ListJobs(const Session& session, const ListJobsArgs& args) {
  v1::ListJobsRequest request;
  for (const std::string& text : args.states) {
    absl::StatusOr<v1::Job::State> state = ParseState(text);
    if (!state.ok()) return state.status();
    request.add_states(*state);
  }
  v1::ListJobsResponse all;
  bool more = true;
  while (more && (args.limit == 0 || all.jobs_size() < args.limit)) {
    request.set_page_size(args.limit == 0 ? kPageSize
                                          : std::min(kPageSize, args.limit - all.jobs_size()));
    absl::StatusOr<v1::ListJobsResponse> page = session.connection->Call(
        session.connection->jobs(), &v1::JobService::StubInterface::ListJobs, request);
    if (!page.ok()) return page.status();
    for (v1::Job& job : *page->mutable_jobs()) *all.add_jobs() = std::move(job);
    request.set_page_token(page->next_page_token());
    more = !page->next_page_token().empty();
  }
  if (session.Print(all)) return 0;
  if (all.jobs().empty()) {
    session.out() << "no jobs" << (args.states.empty() ? "" : " in this state") << std::endl;
    return 0;
  }
  Table table({{"JOB"},
               {"STATE"},
               {"STEP", Table::kRight},
               {"LOSS", Table::kRight},
               {"LEFT", Table::kRight},
               {"CREATED"},
               {"NAME"}});
  for (const v1::Job& job : all.jobs()) {
    std::string state = v1::Job::State_Name(job.state());
    if (job.queue_position() > 0) absl::StrAppend(&state, " #", job.queue_position());
    table.AddRow({ResourceId(job.name()), state, Progress(job), Loss(job), Remaining(job),
                  HumanAge(job.create_time(), session.now()), job.spec().name()});
  }
  session.out() << table.Format(session.terminal());
  if (more)
    session.Note(absl::StrCat("only the newest ", all.jobs_size(), "; see more with --all"));
  return 0;
}

absl::StatusOr<int> ShowJob(const Session& session, const std::string& name) {
  absl::StatusOr<v1::Job> job = session.connection->GetJob(ResourceName("jobs", name));
  if (!job.ok()) return job.status();
  if (session.format == OutputFormat::kYaml) {
    session.out() << FormatJobFile(job->spec()) << std::flush;
    return 0;
  }
  if (session.Print(*job)) return 0;
  Fields fields;
  fields.Add("Job", ResourceId(job->name()));
  fields.Add("Name", job->spec().name());
  fields.Add("State", StateText(job->state(), job->reason(), job->message()));
  if (job->queue_position() > 0) fields.Add("Queue", absl::StrCat("place ", job->queue_position()));
  auto time = [&](const google::protobuf::Timestamp& t) {
    return absl::StrCat(HumanTime(t), " (", HumanAge(t, session.now()), ")");
  };
  fields.Add("Created", time(job->create_time()));
  if (job->has_start_time()) fields.Add("Started", time(job->start_time()));
  if (job->has_end_time()) fields.Add("Ended", time(job->end_time()));
  if (job->attempt() > 0) fields.Add("Attempts", absl::StrCat(job->attempt()));
  if (job->restarts() > 0) {
    fields.Add("Restarts", absl::StrCat(job->restarts(), " since the last step of progress"));
  }
  const v1::JobProgress& progress = job->progress();
  fields.Add("Step", Progress(*job));
  if (progress.has_last_step()) {
    const v1::StepMetrics& step = progress.last_step();
    fields.Add("Loss", HumanLoss(step.loss()));
    fields.Add("Learning rate", absl::StrFormat("%.3g", step.learning_rate()));
    fields.Add("Gradient norm", absl::StrFormat("%.3g", step.gradient_norm()));
    fields.Add("Speed",
               absl::StrCat(HumanCount(step.tokens_per_second()), " tokens/s, ",
                            HumanDuration(absl::Seconds(step.step_seconds())), " a step, ",
                            HumanPercent(step.speed_of_light_ratio()), " of the machine's peak"));
    fields.Add("Waits", StallsText(step.stalls()));
    fields.Add("Tokens", HumanCount(static_cast<double>(step.total_tokens())));
  }
  if (progress.has_last_evaluation()) {
    fields.Add("Evaluation", absl::StrCat(HumanLoss(progress.last_evaluation().loss()), " at step ",
                                          progress.last_evaluation().step()));
  }
  if (progress.last_checkpoint_step() > 0) {
    fields.Add("Checkpoint", absl::StrCat("step ", progress.last_checkpoint_step()));
  }
  if (Remaining(*job) != "-") fields.Add("Left", Remaining(*job));
  std::vector<std::string> pools;
  for (const auto& pool : progress.memory().pools()) {
    pools.push_back(absl::StrCat(pool.purpose(), " ", HumanBytes(pool.bytes())));
  }
  fields.Add("Memory", absl::StrJoin(pools, ", "));
  if (progress.memory().peak_resident_bytes() > 0) {
    fields.Add("Peak memory",
               absl::StrCat(HumanBytes(progress.memory().peak_resident_bytes()), " resident, ",
                            HumanBytes(progress.memory().peak_device_bytes()), " on the device"));
  }
  if (job->has_plan()) AddPlanFields(job->plan(), &fields);
  session.out() << fields.Format(session.terminal());
  session.Note(absl::StrCat("the job file: millrace show ", ResourceId(job->name()), " -o yaml"));
  return 0;
}

absl::StatusOr<int> PauseJob(const Session& session, const std::string& name, bool wait) {
  absl::StatusOr<v1::Job> job =
      CallWithName(session, name, &v1::JobService::StubInterface::PauseJob);
  if (job.ok() && wait) job = WaitFor(session, *job, v1::Job::PAUSED);
  if (!job.ok()) return job.status();
  PrintState(session, *job);
  if (wait && job->state() != v1::Job::PAUSED) {
    return absl::FailedPreconditionError(absl::StrCat(
        job->name(), " ended (", v1::Job::State_Name(job->state()), ") before it could be paused"));
  }
  return 0;
}

absl::StatusOr<int> ResumeJob(const Session& session, const std::string& name) {
  absl::StatusOr<v1::Job> job =
      CallWithName(session, name, &v1::JobService::StubInterface::ResumeJob);
  if (!job.ok()) return job.status();
  PrintState(session, *job);
  return 0;
}

absl::StatusOr<int> CancelJob(const Session& session, const std::string& name, bool wait) {
  absl::StatusOr<v1::Job> job =
      CallWithName(session, name, &v1::JobService::StubInterface::CancelJob);
  if (job.ok() && wait) job = WaitFor(session, *job, v1::Job::CANCELLED);
  if (!job.ok()) return job.status();
  PrintState(session, *job);
  return 0;
}

absl::StatusOr<int> DeleteJob(const Session& session, const std::string& name) {
  v1::DeleteJobRequest request;
  request.set_name(ResourceName("jobs", name));
  absl::StatusOr<google::protobuf::Empty> done = session.connection->Call(
      session.connection->jobs(), &v1::JobService::StubInterface::DeleteJob, request);
  if (!done.ok()) return done.status();
  if (!session.Print(*done)) session.out() << "deleted " << request.name() << std::endl;
  return 0;
}

}  // namespace millrace
