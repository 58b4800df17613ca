// Trains a preset on random tokens and prints one JSON object: tokens/s at the median step, the
// share of the speed of light, and where memory went.
//
//   bazel run //tests/bench/train -- --preset gpt2-124m --batch 4 --sequence 256 --steps 12
//
// tests/bench/pytorch_baseline.py trains the same presets with PyTorch.

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "engine/base/random.h"
#include "engine/base/status_macros.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/exec/step_runner.h"
#include "engine/model/initializer.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/schedule/planner.h"
#include "engine/train/speed_of_light.h"
#include "nlohmann/json.hpp"
#include "tests/bench/train/presets.h"

namespace millrace {
namespace {

struct Options {
  std::string preset = "gpt2-124m";
  Recipe recipe = Recipe::kFull;
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  std::string compute = CpuHasBf16() ? "bf16" : "f32";
  int64_t batch = 4, sequence = 256, micro_batch = 0;
  int64_t steps = 12;
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  double clip_norm = 1.0;
  size_t device_budget = size_t{1} << 40;
};

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// `count` sequences of random tokens, one document each.
MicroBatch RandomBatch(const ModelSpec& spec, int64_t count, int64_t sequence, uint64_t stream) {
  MicroBatch batch;
  const CounterRandom random(1, stream);
  batch.boundaries = {0};
  for (int64_t i = 0; i < count * sequence; ++i) {
    const uint64_t index = static_cast<uint64_t>(2 * i);
    batch.inputs.push_back(static_cast<int32_t>(random.Below(spec.vocab_size, index)));
    batch.targets.push_back(static_cast<int32_t>(random.Below(spec.vocab_size, index + 1)));
    batch.positions.push_back(static_cast<int32_t>(i % sequence));
    if ((i + 1) % sequence == 0) batch.boundaries.push_back(static_cast<int32_t>(i + 1));
  }
  batch.target_count = batch.tokens();
  return batch;
}

absl::StatusOr<nlohmann::json> Measure(const Options& options) {
  MILLRACE_ASSIGN_OR_RETURN(const ModelSpec spec, PresetModel(options.preset));
  ThreadPool pool(options.threads);
  const DType compute = options.compute == "bf16" ? DType::kBF16 : DType::kF32;
  const double peak_flops = MeasureMatmulPeak(compute, &pool);
  std::unique_ptr<Ops> ops = CreateCpuOps(compute, &pool);
  MILLRACE_ASSIGN_OR_RETURN(
      std::unique_ptr<HostState> state,
      HostState::Create(MakeSlabLayouts(spec), options.recipe, compute, pool, options.optimizer));
  for (int unit = 0; unit < state->num_units(); ++unit) {
    std::vector<float> slab(static_cast<size_t>(state->count(unit)));
    InitializeSlab(spec, state->layout(unit), 0, pool, absl::MakeSpan(slab));
    state->WriteMaster(unit, 0, slab);
  }

  const int64_t tokens = options.batch * options.sequence;
  const int64_t micro_batch =
      options.micro_batch > 0 ? options.micro_batch * options.sequence : tokens;
  const StepShape shape =
      ChooseStepShape(spec, tokens, micro_batch, options.sequence, options.clip_norm > 0, compute);
  ScheduledModel model = MakeScheduledModel(spec, *state, *ops, shape);
  MILLRACE_ASSIGN_OR_RETURN(const Plan plan,
                            MakePlan(model, shape, /*unified=*/true, options.device_budget));
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, CreateCpuDevice(plan.device_bytes));
  MILLRACE_ASSIGN_OR_RETURN(
      std::unique_ptr<StepRunner> runner,
      StepRunner::Create(model, plan, device.get(), ops.get(), &pool, state.get(), nullptr));

  std::vector<double> seconds;
  double flops = 0, loss = 0;
  for (int64_t step = 1; step <= options.steps; ++step) {
    std::vector<MicroBatch> batches;
    std::vector<TokenBatch> views;
    for (int64_t b = 0; b < shape.micro_batches; ++b) {
      batches.push_back(RandomBatch(spec, micro_batch / options.sequence, options.sequence,
                                    static_cast<uint64_t>(step * shape.micro_batches + b)));
    }
    for (const MicroBatch& b : batches) {
      views.push_back({b.inputs, b.targets, b.positions, b.boundaries});
    }
    flops = NeededFlops(spec, batches);
    const double begin = Now();
    MILLRACE_ASSIGN_OR_RETURN(
        const StepResult result,
        runner->TrainStep(views,
                          {.step = step, .learning_rate = 1e-4, .clip_norm = options.clip_norm}));
    seconds.push_back(Now() - begin);
    loss = result.loss();
  }
  // The first steps touch memory for the first time.
  std::vector<double> sorted(seconds.begin() + std::min<long>(3, options.steps - 1), seconds.end());
  std::sort(sorted.begin(), sorted.end());
  const double median = sorted[sorted.size() / 2];

  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  nlohmann::json memory;
  for (const MemoryPool& pool_bytes : state->memory())
    memory[pool_bytes.purpose] = pool_bytes.bytes;
  memory["gradients"] = GradientMemoryBytes(state->layouts(), compute);
  for (const MemoryItem& item : plan.memory) memory["device " + item.purpose] = item.bytes;
  return nlohmann::json{
      {"program", "millrace"},
      {"preset", options.preset},
      {"batch", options.batch},
      {"sequence", options.sequence},
      {"recipe", std::string(NameOf(options.recipe))},
      {"optimizer", std::string(NameOf(options.optimizer))},
      {"compute", options.compute},
      {"threads", options.threads},
      {"step_seconds", median},
      {"tokens_per_second", static_cast<double>(tokens) / median},
      {"peak_matmul_flops", peak_flops},
      {"speed_of_light_ratio", flops / peak_flops / median},
      {"kept_passes", plan.kept_passes},
      {"peak_device_bytes", plan.device_bytes},
      {"peak_resident_bytes", usage.ru_maxrss * int64_t{1024}},
      {"memory_bytes", memory},
      {"last_loss", loss},
  };
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a preset on random tokens and prints one JSON object.");
  app.add_option("--preset", options.preset)->check(CLI::IsMember(PresetNames()));
  app.add_option("--batch", options.batch, "sequences a step")->check(CLI::PositiveNumber);
  app.add_option("--micro_batch", options.micro_batch, "sequences a micro-batch; 0: all");
  app.add_option("--sequence", options.sequence, "tokens a sequence")->check(CLI::PositiveNumber);
  app.add_option("--steps", options.steps)->check(CLI::PositiveNumber);
  app.add_option("--recipe", options.recipe)
      ->transform(CLI::CheckedTransformer(std::map<std::string, Recipe>{{"full", Recipe::kFull},
                                                                        {"lean", Recipe::kLean},
                                                                        {"tiny", Recipe::kTiny},
                                                                        {"fp32", Recipe::kFp32}}));
  app.add_option("--optimizer", options.optimizer)
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, OptimizerKind>{{"adamw", OptimizerKind::kAdamW},
                                               {"sgd", OptimizerKind::kSgd},
                                               {"lion", OptimizerKind::kLion}}));
  app.add_option("--compute", options.compute)->check(CLI::IsMember({"bf16", "f32"}));
  app.add_option("--threads", options.threads)->check(CLI::PositiveNumber);
  app.add_option("--clip_norm", options.clip_norm, "0: no clipping");
  app.add_option("--device_budget", options.device_budget, "bytes")
      ->transform(CLI::AsSizeValue(false));
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
