#include "server/worker/local_run.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"
#include "engine/train/trainer.h"
#include "proto/job_file/job_file.h"
#include "server/worker/event_conversion.h"
#include "server/worker/job_lock.h"
#include "server/worker/log_observer.h"
#include "server/worker/spec_conversion.h"

namespace millrace {
namespace {

std::string ToJsonLine(const StepMetrics& metrics) {
  // A number that is none (NaN, infinity) is null in JSON.
  const nlohmann::ordered_json line = {
      {"step", metrics.step},
      {"loss", metrics.loss},
      {"gradient_norm", metrics.gradient_norm},
      {"learning_rate", metrics.learning_rate},
      {"tokens", metrics.tokens},
      {"step_seconds", metrics.step_seconds},
      {"tokens_per_second", metrics.tokens_per_second},
      {"speed_of_light_ratio", metrics.speed_of_light_ratio},
      {"total_tokens", metrics.total_tokens},
      {"stalls",
       {{"weights", metrics.stalls.weights},
        {"gradients", metrics.stalls.gradients},
        {"optimizer", metrics.stalls.optimizer},
        {"activations", metrics.stalls.activations},
        {"data", metrics.stalls.data}}},
  };
  return line.dump() + "\n";
}

class PrintingObserver : public LogObserver {
 public:
  PrintingObserver(StopControl* stop, spdlog::logger* log)
      : LogObserver(log), stop_(stop), log_(log) {}

  void OnStep(const StepMetrics& metrics) override {
    LogObserver::OnStep(metrics);
    const std::string line = ToJsonLine(metrics);
    if (fwrite(line.data(), 1, line.size(), stdout) != line.size() || fflush(stdout) != 0) {
      if (!stop_->stop_trigger().has_value()) log_->warn("nobody reads the output; stopping");
      stop_->RequestStop("SHUTDOWN");
    }
  }

 private:
  StopControl* const stop_;
  spdlog::logger* const log_;
};

absl::StatusOr<TrainResult> Run(const LocalRunOptions& options, const v1::JobSpec& spec,
                                StopControl& stop, spdlog::logger& log) {
  std::vector<FieldProblem> problems;
  const TrainSpec train_spec = ToTrainSpec(spec, PathsInJob(spec), &problems);
  MILLRACE_RETURN_IF_ERROR(StatusOf(problems));
  PrintingObserver observer(&stop, &log);
  return Train(train_spec, options.folder, observer, stop);
}

WorkerExitCode Fail(const absl::Status& status, WorkerExitCode code, spdlog::logger& log) {
  log.error("{}", std::string(status.message()));
  return code;
}

}  // namespace

WorkerExitCode RunLocally(const LocalRunOptions& options, StopControl& stop, spdlog::logger& log) {
  const absl::StatusOr<std::string> text = ReadFile(options.spec_path);
  if (!text.ok()) return Fail(text.status(), WorkerExitCode::kInvalid, log);
  absl::StatusOr<v1::JobSpec> spec =
      ParseJobFile(*text, std::filesystem::path(options.spec_path).parent_path().string());
  if (!spec.ok()) {
    return Fail(
        absl::InvalidArgumentError(absl::StrCat(options.spec_path, ": ", spec.status().message())),
        WorkerExitCode::kInvalid, log);
  }
  std::error_code error;
  std::filesystem::create_directories(options.folder, error);
  if (error) {
    return Fail(ErrnoToStatus(error.value(), "create", options.folder), WorkerExitCode::kError,
                log);
  }
  absl::StatusOr<JobLock> lock = JobLock::Take(options.folder);
  if (!lock.ok()) return Fail(lock.status(), WorkerExitCode::kError, log);
  lock->WriteOwner(getpid()).IgnoreError();

  const v1::WorkerReport::Ended ended = RunToEnd([&] { return Run(options, *spec, stop, log); });
  if (ended.outcome() == v1::WorkerReport::Ended::FAILED) {
    log.error("{}", ended.message());
  } else {
    log.info("{} after step {}", v1::WorkerReport::Ended::Outcome_Name(ended.outcome()),
             ended.step());
  }
  return ExitCodeOf(ended);
}

}  // namespace millrace
