#include "server/worker/daemon_run.h"

#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"
#include "engine/train/checkpoint_folder.h"
#include "engine/train/trainer.h"
#include "proto/job_file/job_file.h"
#include "server/base/paths.h"
#include "server/base/resource_names.h"
#include "server/blobs/model_path.h"
#include "server/worker/daemon_link.h"
#include "server/worker/event_conversion.h"
#include "server/worker/log_observer.h"
#include "server/worker/plan_conversion.h"
#include "server/worker/report_buffer.h"
#include "server/worker/spec_conversion.h"
#include "server/worker/unsent_reports.h"

namespace millrace {
namespace {

class ReportingObserver : public LogObserver {
 public:
  ReportingObserver(v1::JobSpec spec, ReportBuffer* reports, spdlog::logger* log)
      : LogObserver(log), spec_(std::move(spec)), reports_(reports) {}

  void OnPrepared(const TrainSpec& resolved, const JobPlan& plan, int64_t start_step) override {
    LogObserver::OnPrepared(resolved, plan, start_step);
    v1::WorkerReport report;
    *report.mutable_prepared()->mutable_resolved_spec() = FillIn(spec_, resolved);
    report.mutable_prepared()->set_start_step(start_step);
    *report.mutable_prepared()->mutable_plan() = ToProto(plan);
    reports_->Add(std::move(report));
  }
  void OnStep(const StepMetrics& metrics) override {
    v1::WorkerReport report;
    *report.mutable_step() = ToProto(metrics);
    reports_->Add(std::move(report));
    LogObserver::OnStep(metrics);
  }
  void OnEvaluation(const EvaluationMetrics& metrics) override {
    v1::WorkerReport report;
    *report.mutable_evaluation() = ToProto(metrics);
    reports_->Add(std::move(report));
    LogObserver::OnEvaluation(metrics);
  }
  void OnCheckpoint(const CheckpointSaved& checkpoint) override {
    v1::WorkerReport report;
    *report.mutable_checkpoint() = ToProto(checkpoint);
    reports_->Add(std::move(report));
    LogObserver::OnCheckpoint(checkpoint);
  }
  void OnSample(const Sample& sample) override {
    v1::WorkerReport report;
    *report.mutable_sample() = ToProto(sample);
    reports_->Add(std::move(report));
    LogObserver::OnSample(sample);
  }
  void OnTrace(const TraceSaved& trace) override {
    v1::WorkerReport report;
    *report.mutable_trace() = ToProto(trace);
    reports_->Add(std::move(report));
    LogObserver::OnTrace(trace);
  }
  void OnMemory(const MemoryUsage& memory) override {
    v1::WorkerReport report;
    *report.mutable_memory() = ToProto(memory);
    reports_->Add(std::move(report));
    LogObserver::OnMemory(memory);
  }

 private:
  const v1::JobSpec spec_;
  ReportBuffer* const reports_;
};

// Finds the files of the model and the tokenizer that a job names. A run that has a checkpoint
// needs neither any more.
absl::Status FindSources(const DataPaths& data, const std::string& job_dir, const v1::JobSpec& spec,
                         JobPaths* paths) {
  const std::string& from = spec.model().from();
  const bool goes_on = !ListCheckpoints(absl::StrCat(job_dir, "/checkpoints")).empty();
  if (!from.empty()) {
    const absl::StatusOr<NamedModel> model = FindModel(data, "model.from", from);
    if (!model.ok() && !goes_on) return model.status();
    paths->model = model.ok() ? model->path : from;
  }
  if (spec.tokenizer().empty() || spec.tokenizer() == "byte") return absl::OkStatus();
  const absl::StatusOr<std::string> tokenizer = FindTokenizer(data, "tokenizer", spec.tokenizer());
  if (!tokenizer.ok() && !goes_on) return tokenizer.status();
  paths->tokenizer = tokenizer.ok() ? *tokenizer : spec.tokenizer();
  return absl::OkStatus();
}

absl::StatusOr<TrainResult> RunAttempt(const DaemonRunOptions& options,
                                       const std::string& attempt_folder, StopControl& stop,
                                       ReportBuffer* reports, spdlog::logger& log) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, ReadFile(attempt_folder + "/job.yaml"));
  MILLRACE_ASSIGN_OR_RETURN(v1::JobSpec spec, ParseJobFile(text));
  MILLRACE_ASSIGN_OR_RETURN(const std::string dataset,
                            ParseDatasetName("data.train", spec.data().train()));
  JobPaths paths;
  MILLRACE_RETURN_IF_ERROR(FindSources(DataPaths(options.data_dir), options.job_dir, spec, &paths));
  paths.data = absl::StrCat(DataPaths(options.data_dir).Dataset(dataset), "/files");
  std::vector<FieldProblem> problems;
  TrainSpec train_spec = ToTrainSpec(spec, paths, &problems);
  MILLRACE_RETURN_IF_ERROR(StatusOf(problems));
  // The daemon has filled in both.
  if (train_spec.compute && train_spec.threads) {
    train_spec.calibration_file =
        DataPaths(options.data_dir).CpuProfile(NameOf(*train_spec.compute), *train_spec.threads);
  }
  ReportingObserver observer(std::move(spec), reports, &log);
  return Train(train_spec, options.job_dir, observer, stop);
}

}  // namespace

WorkerExitCode RunUnderDaemon(const DaemonRunOptions& options, StopControl& stop,
                              spdlog::logger& log) {
  const std::string job_id = std::filesystem::path(options.job_dir).filename().string();
  const std::string attempt_folder = DataPaths(options.data_dir).Attempt(job_id, options.attempt);
  ReportBuffer reports;
  DaemonLink link({.socket = options.socket, .job_id = job_id, .attempt = options.attempt},
                  &reports, [&stop, &log](const v1::WorkerCommand& command) {
                    if (command.has_stop()) {
                      log.info("asked to stop ({})", command.stop().trigger());
                      stop.RequestStop(command.stop().trigger());
                    } else if (command.has_cancel()) {
                      log.info("asked to cancel");
                      stop.RequestCancel();
                    }
                  });

  const v1::WorkerReport::Ended ended =
      RunToEnd([&] { return RunAttempt(options, attempt_folder, stop, &reports, log); });
  if (ended.outcome() == v1::WorkerReport::Ended::FAILED) {
    log.error("{}", ended.message());
  } else {
    log.info("{} after step {}", v1::WorkerReport::Ended::Outcome_Name(ended.outcome()),
             ended.step());
  }
  v1::WorkerReport report;
  *report.mutable_ended() = ended;
  reports.Add(std::move(report));

  if (!reports.WaitUntilAllAcknowledged(options.acknowledge_patience)) {
    log.warn("no daemon took the last reports; they are left for the next one");
    const absl::Status saved = WriteUnsentReports(attempt_folder, reports.Unacknowledged());
    if (!saved.ok()) log.error("{}", std::string(saved.message()));
  }
  return ExitCodeOf(ended);
}

}  // namespace millrace
