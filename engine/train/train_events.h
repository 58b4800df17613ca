// What a run tells while it trains.
#ifndef MILLRACE_ENGINE_TRAIN_TRAIN_EVENTS_H_
#define MILLRACE_ENGINE_TRAIN_TRAIN_EVENTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/schedule/stalls.h"
#include "engine/state/host_state.h"
#include "engine/train/job_plan.h"
#include "engine/train/train_spec.h"

namespace millrace {

struct StepMetrics {
  int64_t step = 0;          // optimizer steps done, counted from 1
  double loss = 0;           // mean over the step's unmasked tokens, nats
  double gradient_norm = 0;  // global L2 norm before clipping
  double learning_rate = 0;
  int64_t tokens = 0;  // of this step
  double step_seconds = 0;
  double tokens_per_second = 0;
  // Time of the needed matrix products at the machine's measured peak, over step_seconds.
  double speed_of_light_ratio = 0;
  int64_t total_tokens = 0;  // of all steps so far
  StepStalls stalls;
};

struct EvaluationMetrics {
  int64_t step = 0;
  double loss = 0;  // mean over the evaluation tokens, nats
  int64_t tokens = 0;
  double seconds = 0;
};

struct CheckpointSaved {
  int64_t step = 0;
  int64_t size_bytes = 0;
  double seconds = 0;
  std::string trigger;  // "SCHEDULED", "FINAL", or what RequestStop was given
};

// A trace of what happened on each stream was written.
struct TraceSaved {
  int64_t first_step = 0, last_step = 0;
  std::string path;  // beneath the job's folder: traces/steps-10-12.json
  int64_t size_bytes = 0;
};

struct Sample {
  int64_t step = 0;
  std::string prompt;
  std::string text;  // the continuation, without the prompt
};

struct MemoryUsage {
  // "weights", "optimizer", "gradients", "activations", "workspace", "data".
  std::vector<MemoryPool> pools;
  int64_t peak_device_bytes = 0;    // that the steps so far have worked in
  int64_t peak_resident_bytes = 0;  // of the process
};

// Called on the thread that runs Train, in the order in which things happen; must not block long.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;

  // Model and data are read and the plan is verified; steps follow. `resolved` has everything
  // decided that fixes the numbers, `plan` is how its steps run.
  virtual void OnPrepared(const TrainSpec& resolved, const JobPlan& plan, int64_t start_step) {}
  virtual void OnStep(const StepMetrics& metrics) {}
  virtual void OnEvaluation(const EvaluationMetrics& metrics) {}
  virtual void OnCheckpoint(const CheckpointSaved& checkpoint) {}
  virtual void OnSample(const Sample& sample) {}
  // Something a person may want to know that does not end the run.
  virtual void OnWarning(absl::string_view message) {}
  virtual void OnTrace(const TraceSaved& trace) {}
  virtual void OnMemory(const MemoryUsage& memory) {}
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_TRAIN_TRAIN_EVENTS_H_
