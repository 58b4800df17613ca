// Everything that a run needs before its first step, made in the order in which it is checked:
// spec, model, data, memory, plan, and the weights to begin with or to go on from.
#ifndef MILLRACE_ENGINE_TRAIN_RUN_SETUP_H_
#define MILLRACE_ENGINE_TRAIN_RUN_SETUP_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/thread_pool.h"
#include "engine/data/data_loader.h"
#include "engine/data/token_store.h"
#include "engine/data/tokenizer.h"
#include "engine/device/device.h"
#include "engine/exec/step_runner.h"
#include "engine/ops/ops.h"
#include "engine/state/host_state.h"
#include "engine/train/checkpoint.h"
#include "engine/train/job_plan.h"
#include "engine/train/stop_control.h"
#include "engine/train/train_events.h"
#include "engine/train/train_spec.h"

namespace millrace {

struct RunSetup {
  TrainSpec spec;  // resolved, with its micro-batch
  ModelSpec model;
  JobPlan plan;             // without its trace
  std::string checkpoints;  // folder
  std::string tokenizer_folder;
  // Members are made in this order; what comes later uses what comes before.
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<TokenStore> store;
  std::optional<DataLoader> loader;  // at the next step's data
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<ThreadPool> host_pool;  // on a discrete device, for the host's own work
  std::unique_ptr<Ops> ops;
  std::unique_ptr<HostState> state;
  std::unique_ptr<Device> device;
  std::unique_ptr<StepRunner> runner;
  // What the run is at.
  TrainerState at;
  // Matrix products of this machine at full speed, FLOP/s.
  double peak_flops = 0;
};

// Errors carry their reason (failure.h). CANCELLED when `stop` asks for an end while data is
// prepared.
absl::StatusOr<std::unique_ptr<RunSetup>> PrepareRun(const TrainSpec& spec,
                                                     const std::string& job_folder,
                                                     TrainObserver& observer, StopControl& stop);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_TRAIN_RUN_SETUP_H_
