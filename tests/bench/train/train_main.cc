// Trains a preset on random tokens and prints one JSON object: tokens/s at the median step, the
// share of the speed of light, the step time that the simulator predicts, and planned and measured
// memory.
//
//   bazel run //tests/bench:train -- --preset gpt2-124m --batch 4 --sequence 256 --steps 12
//   bazel run //tests/bench:train -- --device cpu-discrete --device_budget 200MB --link_gbps 2
//
// tests/bench/pytorch_baseline.py trains the same presets with PyTorch.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "engine/base/status_macros.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/exec/step_runner.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/schedule/calibration.h"
#include "engine/schedule/planner.h"
#include "engine/state/initial_weights.h"
#include "engine/train/speed_of_light.h"
#include "nlohmann/json.hpp"
#include "tests/bench/train/options.h"
#include "tests/bench/train/presets.h"
#include "tests/bench/train/random_batches.h"

namespace millrace {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A file's line "VmRSS:  123 kB", in bytes; 0 when there is none.
int64_t StatusBytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    int64_t kilobytes = 0;
    if (word == key + ":" && status >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

nlohmann::json Stalls(const StepStalls& stalls) {
  return {{"weights", stalls.weights},
          {"gradients", stalls.gradients},
          {"optimizer", stalls.optimizer},
          {"activations", stalls.activations},
          {"data", stalls.data}};
}

absl::StatusOr<nlohmann::json> Measure(const BenchOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(const ModelSpec spec, PresetModel(options.preset));
  ThreadPool pool(options.threads);
  // The host's own work: on a discrete device it runs beside the ops.
  ThreadPool host_pool(options.host_threads > 0 ? options.host_threads : options.threads);
  const DType compute = options.compute_dtype();
  const double peak_flops = MeasureMatmulPeak(compute, &pool);
  DeviceProfile profile = CalibrateCpu(options.calibration, compute, pool).profile;
  if (!options.unified()) profile = WithLink(std::move(profile), options.link_gbps * 1e9, 0);

  std::unique_ptr<Ops> ops = CreateCpuOps(compute, &pool);
  const int64_t runtime_bytes = StatusBytes("VmRSS");
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<HostState> state,
                            HostState::Create(MakeSlabLayouts(spec), options.recipe, compute,
                                              host_pool, options.optimizer));
  MILLRACE_RETURN_IF_ERROR(DrawWeights(spec, 0, host_pool, state.get()));

  const int64_t tokens = options.batch * options.sequence;
  const int64_t micro_batch =
      options.micro_batch > 0 ? options.micro_batch * options.sequence : tokens;
  StepShape shape =
      ChooseStepShape(spec, tokens, micro_batch, options.sequence, options.clip_norm > 0, compute);
  if (options.head == "tiles") TileVocabulary(spec, &shape);
  ScheduledModel model = MakeScheduledModel(spec, *state, *ops, shape);
  const UpdateWork update =
      UpdateWorkOf(state->layouts(), options.recipe, compute, options.optimizer);
  MILLRACE_ASSIGN_OR_RETURN(const PlannedStep planned,
                            PlanStep(model, shape,
                                     {.unified = options.unified(),
                                      .device_budget_bytes = options.device_budget,
                                      .host_budget_bytes = options.host_budget,
                                      .choices = options.choices(),
                                      .profile = &profile,
                                      .update = update}));
  const Plan& plan = planned.plan;
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<Device> device,
                            CreateCpuDevice({.budget_bytes = plan.device_bytes,
                                             .mode = options.unified() ? CpuDeviceMode::kUnified
                                                                       : CpuDeviceMode::kDiscrete,
                                             .link_bytes_per_second = options.link_gbps * 1e9}));
  MILLRACE_ASSIGN_OR_RETURN(
      std::unique_ptr<StepRunner> runner,
      StepRunner::Create(model, plan, device.get(), ops.get(), &host_pool, state.get(), nullptr));

  std::vector<double> seconds;
  double flops = 0;
  StepResult last;
  for (int64_t step = 1; step <= options.steps; ++step) {
    const std::vector<MicroBatch> batches = RandomBatches(spec, shape, static_cast<uint64_t>(step));
    const std::vector<TokenBatch> views = Views(batches);
    flops = NeededFlops(spec, batches);
    const double begin = Now();
    MILLRACE_ASSIGN_OR_RETURN(
        last, runner->TrainStep(
                  views, {.step = step, .learning_rate = 1e-4, .clip_norm = options.clip_norm}));
    seconds.push_back(Now() - begin);
  }
  // The first steps touch memory for the first time.
  const long warm_up = std::min<long>(3, static_cast<long>(seconds.size()) - 1);
  const double median = Median({seconds.begin() + warm_up, seconds.end()});

  nlohmann::json memory;
  int64_t planned_bytes = runtime_bytes;
  const auto add = [&](const std::string& purpose, int64_t bytes) {
    memory[purpose] = bytes;
    planned_bytes += bytes;
  };
  for (const MemoryPool& item : state->memory()) add(item.purpose, item.bytes);
  for (const MemoryItem& item : plan.host_memory) {
    add("host " + item.purpose, static_cast<int64_t>(item.bytes));
  }
  for (const MemoryItem& item : plan.memory) {
    add("device " + item.purpose, static_cast<int64_t>(item.bytes));
  }
  nlohmann::json choices;
  for (const PlanAlternative& choice : planned.alternatives) {
    choices[choice.choice] = choice.value;
  }
  return nlohmann::json{
      {"program", "millrace"},
      {"preset", options.preset},
      {"batch", options.batch},
      {"sequence", options.sequence},
      {"micro_batches", shape.micro_batches},
      {"recipe", std::string(NameOf(options.recipe))},
      {"optimizer", std::string(NameOf(options.optimizer))},
      {"compute", options.compute},
      {"threads", options.threads},
      {"device", options.device},
      {"link_gbps", options.link_gbps},
      {"plan", choices},
      {"step_seconds", median},
      {"predicted_step_seconds", planned.simulation.seconds},
      {"tokens_per_second", static_cast<double>(tokens) / median},
      {"peak_matmul_flops", peak_flops},
      {"speed_of_light_ratio", flops / peak_flops / median},
      {"stall_seconds", Stalls(last.stalls)},
      {"planned_device_bytes", plan.device_bytes},
      {"peak_device_bytes", runner->peak_device_bytes()},
      {"planned_resident_bytes", planned_bytes},
      {"resident_bytes", StatusBytes("VmRSS")},
      {"peak_resident_bytes", StatusBytes("VmHWM")},
      {"memory_bytes", memory},
      {"last_loss", last.loss()},
  };
}

int Main(int argc, char** argv) {
  BenchOptions options;
  CLI::App app("Trains a preset on random tokens and prints one JSON object.");
  AddOptions(app, options);
  CLI11_PARSE(app, argc, argv);
  const absl::StatusOr<nlohmann::json> result = Measure(options);
  if (!result.ok()) {
    std::cerr << result.status().message() << "\n";
    return 1;
  }
  std::cout << *result << std::endl;
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::Main(argc, argv); }
