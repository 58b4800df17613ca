// Tells a run to its log: every event but steps, and of steps one a second.
#ifndef MILLRACE_SERVER_WORKER_LOG_OBSERVER_H_
#define MILLRACE_SERVER_WORKER_LOG_OBSERVER_H_

#include <spdlog/logger.h>

#include <cstdint>

#include "absl/time/time.h"
#include "engine/train/train_events.h"

namespace millrace {

// Used by the training thread alone. Those who do more with an event derive from it.
class LogObserver : public TrainObserver {
 public:
  // `log` outlives this.
  explicit LogObserver(spdlog::logger* log) : log_(log) {}

  void OnPrepared(const TrainSpec& resolved, const JobPlan& plan, int64_t start_step) override;
  void OnStep(const StepMetrics& metrics) override;
  void OnEvaluation(const EvaluationMetrics& metrics) override;
  void OnCheckpoint(const CheckpointSaved& checkpoint) override;
  void OnSample(const Sample& sample) override;
  void OnWarning(absl::string_view message) override;
  void OnTrace(const TraceSaved& trace) override;
  void OnMemory(const MemoryUsage& memory) override;

 private:
  spdlog::logger* const log_;
  int64_t total_steps_ = 0;
  absl::Time last_step_line_ = absl::InfinitePast();
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_WORKER_LOG_OBSERVER_H_
