#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cli/exit_codes.h"
#include "client/cli/human.h"
#include "client/cli/job_commands.h"
#include "client/cli/job_file_argument.h"
#include "client/cli/plan_view.h"
#include "client/lib/local_file.h"
#include "client/lib/trace_download.h"

namespace millrace {
namespace {

// The largest models on the largest machines take the daemon a while.
constexpr absl::Duration kPlanDeadline = absl::Minutes(5);

absl::Status WriteTrace(const std::string& path, const std::string& trace) {
  absl::Status status = CheckReplaceable(path);
  if (!status.ok()) return status;
  absl::StatusOr<LocalFile> file = LocalFile::OpenForWriting(path);
  if (!file.ok()) return file.status();
  status = file->Truncate(0);
  return status.ok() ? file->Write(0, trace) : status;
}

}  // namespace

absl::StatusOr<int> PlanJob(const Session& session, const PlanArgs& args) {
  absl::StatusOr<v1::JobSpec> spec = ReadJobFile(session, args.file);
  if (!spec.ok()) return spec.status();
  v1::PlanJobRequest request;
  *request.mutable_spec() = *std::move(spec);
  request.set_device(args.device);
  request.set_host_memory_bytes(args.host_memory_bytes);
  request.set_trace(!args.trace_file.empty());
  absl::StatusOr<v1::PlanJobResponse> response = session.connection->Call(
      session.connection->jobs(), &v1::JobService::StubInterface::PlanJob, request, kPlanDeadline);
  if (!response.ok()) return response.status();
  const v1::JobPlan& plan = response->plan();
  if (!session.Print(plan)) session.out() << FormatPlan(session.terminal(), plan) << std::flush;
  if (!plan.fits()) return kExitMemoryInsufficient;
  if (!args.trace_file.empty()) {
    absl::Status written = WriteTrace(args.trace_file, response->trace());
    if (!written.ok()) return written;
    session.Note(absl::StrCat(args.trace_file, " is the predicted step (",
                              HumanBytes(static_cast<int64_t>(response->trace().size())),
                              "); open it in ui.perfetto.dev"));
  }
  return 0;
}

absl::StatusOr<int> FetchTrace(const Session& session, const TraceArgs& args) {
  const std::string name = ResourceName("jobs", args.job);
  absl::StatusOr<TraceInfo> trace = DownloadTrace(
      *session.connection, name, args.first_step,
      [&](const TraceInfo& info) {
        return args.out.empty() ? absl::StrCat(ResourceId(name), "-steps-", info.first_step, "-",
                                               info.last_step, ".json")
                                : args.out;
      },
      [&](const absl::Status&) {
        session.Note("the connection to the daemon broke; trying again");
      });
  if (!trace.ok()) return trace.status();
  v1::TraceSaved saved;
  saved.set_first_step(trace->first_step);
  saved.set_last_step(trace->last_step);
  saved.set_path(trace->path);
  saved.set_size_bytes(trace->size_bytes);
  if (session.Print(saved)) return 0;
  session.out() << trace->path << " has steps " << trace->first_step << " to " << trace->last_step
                << " (" << HumanBytes(trace->size_bytes) << "); open it in ui.perfetto.dev"
                << std::endl;
  return 0;
}

}  // namespace millrace
