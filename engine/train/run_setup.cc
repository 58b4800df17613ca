#include "engine/train/run_setup.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/state/initial_weights.h"
#include "engine/state/load_weights.h"
#include "engine/train/checkpoint_folder.h"
#include "engine/train/failure.h"
#include "engine/train/job_model.h"
#include "engine/train/job_tokenizer.h"
#include "engine/train/speed_of_light.h"
#include "engine/train/weights_hash.h"

namespace millrace {
namespace {

absl::StatusOr<ModelSpec> MakeModel(const TrainSpec& spec, const Tokenizer& tokenizer,
                                    TrainObserver& observer) {
  std::vector<FieldProblem> problems, notes;
  std::optional<ModelSpec> model = MakeJobModel(spec, tokenizer.vocab_size(), &problems, &notes);
  MILLRACE_RETURN_IF_ERROR(StatusOf(problems));
  for (const FieldProblem& note : notes) {
    observer.OnWarning(absl::StrCat(spec.model_from, ": ", note.field, ": ", note.message));
  }
  return *std::move(model);
}

// Reads the dataset into `folder`, or finds it there.
absl::StatusOr<TokenStore> PrepareData(const TrainSpec& spec, const Tokenizer& tokenizer,
                                       const std::string& folder, const StopControl& stop) {
  absl::StatusOr<TokenStore> store = TokenStore::Prepare(
      spec.data_path, tokenizer, folder, [&stop](int64_t, int64_t) -> absl::Status {
        if (!stop.cancelled() && !stop.stop_trigger()) return absl::OkStatus();
        return absl::CancelledError("stopped while the data was being prepared");
      });
  return store.ok() ? std::move(store) : OnDisk(store.status());
}

// How the run's steps are made on this machine.
absl::StatusOr<JobPlan> PlanRun(const TrainSpec& spec, const ModelSpec& model) {
  MILLRACE_ASSIGN_OR_RETURN(JobPlan plan,
                            PlanJob(spec, model, {.calibration_file = spec.calibration_file}));
  if (plan.fits) return plan;
  const std::string message = absl::StrCat(plan.shortfall_field, ": ", plan.shortfall);
  // What the job asks for can be refused for good; what is free may change.
  const bool own_budget =
      (plan.shortfall_field == "memory.device_budget" && spec.device_budget_bytes) ||
      (plan.shortfall_field == "memory.host_budget" && spec.host_budget_bytes);
  return own_budget ? absl::InvalidArgumentError(message) : absl::ResourceExhaustedError(message);
}

// Pools, ops, and host state without weights.
absl::Status MakeState(const Plan& plan, RunSetup* run) {
  const TrainSpec& spec = run->spec;
  run->pool = std::make_unique<ThreadPool>(static_cast<int>(*spec.threads));
  // On a discrete device the host's own work goes on beside the ops.
  const bool discrete = !plan.unified;
  if (discrete) run->host_pool = std::make_unique<ThreadPool>(static_cast<int>(*spec.threads));
  ThreadPool* host_pool = discrete ? run->host_pool.get() : run->pool.get();
  // Before anything large is there: what it works in is gone again by then.
  run->peak_flops = PeakFlops(*spec.compute, *run->pool);
  run->ops = CreateCpuOps(*spec.compute, run->pool.get());
  MILLRACE_ASSIGN_OR_RETURN(
      run->state, HostState::Create(MakeSlabLayouts(run->model), spec.recipe, *spec.compute,
                                    *host_pool, spec.optimizer));
  return absl::OkStatus();
}

// Device and runner.
absl::Status MakeRunner(const Plan& plan, StopControl& stop, RunSetup* run) {
  const TrainSpec& spec = run->spec;
  const bool discrete = !plan.unified;
  ThreadPool* host_pool = discrete ? run->host_pool.get() : run->pool.get();
  MILLRACE_ASSIGN_OR_RETURN(
      run->device,
      CreateCpuDevice({.budget_bytes = plan.device_bytes,
                       .mode = discrete ? CpuDeviceMode::kDiscrete : CpuDeviceMode::kUnified,
                       .link_bytes_per_second = spec.link_gbps.value_or(0) * 1e9}));
  MILLRACE_ASSIGN_OR_RETURN(
      run->runner,
      StepRunner::Create(MakeScheduledModel(run->model, *run->state, *run->ops, plan.shape), plan,
                         run->device.get(), run->ops.get(), host_pool, run->state.get(),
                         &stop.cancel_flag()));
  return absl::OkStatus();
}

// The weights that a run begins with.
absl::Status BeginWithWeights(const StopControl& stop, RunSetup* run) {
  const TrainSpec& spec = run->spec;
  if (spec.model_from.empty()) {
    return DrawWeights(run->model, static_cast<uint64_t>(spec.seed), *run->pool, run->state.get());
  }
  const absl::Status read = LoadWeights(
      run->model, spec.model_path, *run->pool, run->state.get(), [&stop]() -> absl::Status {
        if (!stop.cancelled() && !stop.stop_trigger()) return absl::OkStatus();
        return absl::CancelledError("stopped while the model was being read");
      });
  if (read.ok()) {
    run->at.identity[kWeightsField] = WeightsSha256(*run->state, *run->pool);
    return absl::OkStatus();
  }
  if (absl::IsCancelled(read)) return read;
  return absl::Status(read.code(), absl::StrCat("model.from: `", spec.model_from,
                                                "` cannot be read: ", read.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunSetup>> PrepareRun(const TrainSpec& spec,
                                                     const std::string& job_folder,
                                                     TrainObserver& observer, StopControl& stop) {
  MILLRACE_RETURN_IF_ERROR(StatusOf(Validate(spec)));
  auto run = std::make_unique<RunSetup>();
  run->spec = spec;
  run->checkpoints = absl::StrCat(job_folder, "/checkpoints");
  run->tokenizer_folder = absl::StrCat(job_folder, "/tokenizer");

  MILLRACE_RETURN_IF_ERROR(RemoveLeftovers(run->checkpoints));
  MILLRACE_ASSIGN_OR_RETURN(
      const std::optional<CheckpointInfo> checkpoint,
      NewestIntactCheckpoint(run->checkpoints, [&observer](absl::string_view message) {
        observer.OnWarning(message);
      }));
  if (checkpoint) {
    MILLRACE_ASSIGN_OR_RETURN(run->at, ReadTrainerState(checkpoint->folder));
    AdoptDecisions(run->at.identity, &run->spec);
    // From now on nothing of the model that it began with is needed.
    if (!spec.model_from.empty()) run->spec.model_path = checkpoint->folder;
  } else {
    // Says best what is wrong with the source.
    MILLRACE_RETURN_IF_ERROR(MakeJobTokenizer(spec).status());
  }
  run->spec = Resolve(std::move(run->spec),
                      std::max<int64_t>(1, std::thread::hardware_concurrency()), CpuHasBf16());
  MILLRACE_RETURN_IF_ERROR(
      OnDisk(KeepTokenizer(spec, checkpoint ? checkpoint->folder : "", run->tokenizer_folder)));
  MILLRACE_ASSIGN_OR_RETURN(run->tokenizer, LoadKeptTokenizer(spec, run->tokenizer_folder));
  MILLRACE_ASSIGN_OR_RETURN(run->model, MakeModel(run->spec, *run->tokenizer, observer));

  MILLRACE_ASSIGN_OR_RETURN(
      run->store, PrepareData(spec, *run->tokenizer, absl::StrCat(job_folder, "/prepared"), stop));
  MILLRACE_ASSIGN_OR_RETURN(
      run->loader, DataLoader::Create(*run->store, {.sequence_length = spec.sequence_length,
                                                    .eval_fraction = spec.eval_fraction,
                                                    .seed = static_cast<uint64_t>(spec.seed)}));

  MILLRACE_ASSIGN_OR_RETURN(run->plan, PlanRun(run->spec, run->model));
  const StepShape& shape = run->plan.plan.shape;
  run->spec.tokens_per_micro_batch = shape.tokens_per_micro_batch;
  RunIdentity identity = IdentityOf(run->spec, run->model, run->store->sha256(), shape);
  if (checkpoint) {
    // It has the weights of its own by now.
    if (const auto weights = run->at.identity.find(kWeightsField);
        weights != run->at.identity.end()) {
      identity.insert(*weights);
    }
    MILLRACE_RETURN_IF_ERROR(CheckSameRun(run->at.identity, identity, checkpoint->step));
  }
  run->at.identity = std::move(identity);

  MILLRACE_RETURN_IF_ERROR(MakeState(run->plan.plan, run.get()));
  if (checkpoint) {
    MILLRACE_RETURN_IF_ERROR(
        ReadHostState(checkpoint->folder, run->model, *run->pool, run->state.get()));
    MILLRACE_RETURN_IF_ERROR(run->loader->Seek(run->at.cursor));
  } else {
    MILLRACE_RETURN_IF_ERROR(BeginWithWeights(stop, run.get()));
  }
  // What reading takes is free again by now.
  MILLRACE_RETURN_IF_ERROR(MakeRunner(run->plan.plan, stop, run.get()));
  return run;
}

}  // namespace millrace
