#include "engine/train/run_setup.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/aligned_buffer.h"
#include "engine/base/status_macros.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/model/initializer.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/schedule/planner.h"
#include "engine/train/checkpoint_folder.h"
#include "engine/train/failure.h"
#include "engine/train/job_model.h"
#include "engine/train/speed_of_light.h"
#include "engine/train/system_memory.h"

namespace millrace {
namespace {

absl::Status FieldError(absl::string_view field, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", message));
}

absl::StatusOr<ModelSpec> MakeModel(const TrainSpec& spec, const Tokenizer& tokenizer) {
  std::vector<FieldProblem> problems;
  std::optional<ModelSpec> model = MakeJobModel(spec, tokenizer.vocab_size(), &problems);
  MILLRACE_RETURN_IF_ERROR(StatusOf(problems));
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

int64_t HostBytes(const TrainSpec& spec, const std::vector<SlabLayout>& layouts) {
  int64_t total = GradientMemoryBytes(layouts, *spec.compute);
  for (const MemoryPool& pool :
       HostStateMemory(layouts, spec.recipe, *spec.compute, spec.optimizer)) {
    total += pool.bytes;
  }
  return total;
}

// What is left for the device's share, which on a CPU comes out of the same memory.
absl::StatusOr<int64_t> CheckHostMemory(const TrainSpec& spec, int64_t needed_bytes) {
  if (spec.host_budget_bytes && needed_bytes > *spec.host_budget_bytes) {
    return FieldError(
        "memory.host_budget",
        absl::StrCat(*spec.host_budget_bytes, " bytes are too few; parameters, ",
                     "optimizer state and gradients of this model take ", needed_bytes));
  }
  const int64_t free_bytes =
      static_cast<int64_t>(kUsableShareOfMemory * static_cast<double>(FreeMemoryBytes()));
  if (needed_bytes > free_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("parameters, optimizer state and gradients of this model take ", needed_bytes,
                     " bytes, but only ", free_bytes, " are free; make the model smaller"));
  }
  return free_bytes - needed_bytes;
}

// Host state, ops, plan, device and runner.
absl::Status MakeEngine(const StepShape& shape, StopControl& stop, RunSetup* run) {
  const TrainSpec& spec = run->spec;
  run->pool = std::make_unique<ThreadPool>(static_cast<int>(*spec.threads));
  // Before anything large is there: what it works in is gone again by then.
  run->peak_flops = PeakFlops(*spec.compute, *run->pool);
  run->ops = CreateCpuOps(*spec.compute, run->pool.get());
  std::vector<SlabLayout> layouts = MakeSlabLayouts(run->model);
  MILLRACE_ASSIGN_OR_RETURN(const int64_t free_bytes,
                            CheckHostMemory(spec, HostBytes(spec, layouts)));
  MILLRACE_ASSIGN_OR_RETURN(
      run->state, HostState::Create(std::move(layouts), spec.recipe, *spec.compute, *run->pool,
                                    spec.optimizer));

  ScheduledModel scheduled = MakeScheduledModel(run->model, *run->state, *run->ops, shape);
  const bool unified = spec.device != "cpu-discrete";
  const int64_t device_budget = spec.device_budget_bytes.value_or(free_bytes);
  absl::StatusOr<Plan> plan =
      MakePlan(scheduled, shape, unified, static_cast<size_t>(device_budget), spec.plan);
  if (!plan.ok()) {
    return spec.device_budget_bytes && absl::IsResourceExhausted(plan.status())
               ? FieldError("memory.device_budget", plan.status().message())
               : plan.status();
  }
  MILLRACE_ASSIGN_OR_RETURN(
      run->device,
      CreateCpuDevice({.budget_bytes = plan->device_bytes,
                       .mode = unified ? CpuDeviceMode::kUnified : CpuDeviceMode::kDiscrete,
                       .link_bytes_per_second = spec.link_gbps.value_or(0) * 1e9}));
  MILLRACE_ASSIGN_OR_RETURN(
      run->runner,
      StepRunner::Create(std::move(scheduled), *std::move(plan), run->device.get(), run->ops.get(),
                         run->pool.get(), run->state.get(), &stop.cancel_flag()));
  return absl::OkStatus();
}

absl::Status DrawWeights(const ModelSpec& model, uint64_t seed, ThreadPool& pool,
                         HostState* state) {
  for (int unit = 0; unit < state->num_units(); ++unit) {
    const int64_t count = state->count(unit);
    MILLRACE_ASSIGN_OR_RETURN(
        AlignedBuffer buffer,
        AlignedBuffer::Allocate(static_cast<size_t>(count) * sizeof(float), "initial weights"));
    float* const values = buffer.as<float>();
    InitializeSlab(model, state->layout(unit), seed, pool,
                   absl::MakeSpan(values, static_cast<size_t>(count)));
    pool.ParallelFor(count, [&](int64_t begin, int64_t end) {
      state->WriteMaster(unit, begin,
                         absl::MakeConstSpan(values + begin, static_cast<size_t>(end - begin)));
    });
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunSetup>> PrepareRun(const TrainSpec& spec,
                                                     const std::string& job_folder,
                                                     TrainObserver& observer, StopControl& stop) {
  MILLRACE_RETURN_IF_ERROR(StatusOf(Validate(spec)));
  auto run = std::make_unique<RunSetup>();
  run->spec = spec;
  run->checkpoints = absl::StrCat(job_folder, "/checkpoints");
  MILLRACE_ASSIGN_OR_RETURN(run->tokenizer, MakeTokenizer(spec.tokenizer));
  MILLRACE_ASSIGN_OR_RETURN(run->model, MakeModel(spec, *run->tokenizer));

  MILLRACE_RETURN_IF_ERROR(RemoveLeftovers(run->checkpoints));
  MILLRACE_ASSIGN_OR_RETURN(
      const std::optional<CheckpointInfo> checkpoint,
      NewestIntactCheckpoint(run->checkpoints, [&observer](absl::string_view message) {
        observer.OnWarning(message);
      }));
  if (checkpoint) {
    MILLRACE_ASSIGN_OR_RETURN(run->at, ReadTrainerState(checkpoint->folder));
    AdoptDecisions(run->at.identity, &run->spec);
  }
  run->spec = Resolve(std::move(run->spec),
                      std::max<int64_t>(1, std::thread::hardware_concurrency()), CpuHasBf16());

  MILLRACE_ASSIGN_OR_RETURN(
      run->store, PrepareData(spec, *run->tokenizer, absl::StrCat(job_folder, "/prepared"), stop));
  MILLRACE_ASSIGN_OR_RETURN(
      run->loader, DataLoader::Create(*run->store, {.sequence_length = spec.sequence_length,
                                                    .eval_fraction = spec.eval_fraction,
                                                    .seed = static_cast<uint64_t>(spec.seed)}));

  StepShape shape =
      ChooseStepShape(run->model, spec.tokens_per_step, run->spec.tokens_per_micro_batch,
                      spec.sequence_length, spec.clip_norm > 0, *run->spec.compute);
  shape.z_loss = spec.z_loss;
  run->spec.tokens_per_micro_batch = shape.tokens_per_micro_batch;
  RunIdentity identity = IdentityOf(run->spec, run->model, run->store->sha256(), shape);
  if (checkpoint) {
    MILLRACE_RETURN_IF_ERROR(CheckSameRun(run->at.identity, identity, checkpoint->step));
  }
  run->at.identity = std::move(identity);

  MILLRACE_RETURN_IF_ERROR(MakeEngine(shape, stop, run.get()));
  if (checkpoint) {
    MILLRACE_RETURN_IF_ERROR(ReadHostState(checkpoint->folder, run->model, run->state.get()));
    MILLRACE_RETURN_IF_ERROR(run->loader->Seek(run->at.cursor));
  } else {
    MILLRACE_RETURN_IF_ERROR(
        DrawWeights(run->model, static_cast<uint64_t>(spec.seed), *run->pool, run->state.get()));
  }
  return run;
}

}  // namespace millrace
