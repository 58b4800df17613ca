// Compares the simulator with the machine: calibrates the processor, then runs steps of several
// plans and prints one JSON object with the predicted and the measured seconds of each.
//
//   bazel run //tests/bench/simulator -- --preset llama-125m --batch 4 --sequence 256 --steps 5
//
// With --ops each plan also has the predicted and measured seconds of every kind of instruction.

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/base/thread_pool.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/exec/step_runner.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/schedule/builder.h"
#include "engine/schedule/calibration.h"
#include "engine/schedule/planner.h"
#include "engine/schedule/simulator.h"
#include "engine/state/host_state.h"
#include "engine/state/initial_weights.h"
#include "nlohmann/json.hpp"
#include "tests/bench/train/presets.h"
#include "tests/bench/train/random_batches.h"

namespace millrace {
namespace {

using Json = nlohmann::json;

struct Options {
  std::string preset = "llama-125m";
  std::string compute = CpuHasBf16() ? "bf16" : "f32";
  int64_t batch = 4, sequence = 256, steps = 5;
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  int only = -1;
  bool ops = false;
};

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A plan and the link that it runs with.
struct Case {
  std::string name;
  Plan plan;
  double link_bytes_per_second = 0;
};

class Comparison {
 public:
  static absl::StatusOr<Json> Run(const Options& options) {
    MILLRACE_ASSIGN_OR_RETURN(const ModelSpec spec, PresetModel(options.preset));
    Comparison comparison(options, spec);
    return comparison.Compare();
  }

 private:
  Comparison(const Options& options, const ModelSpec& spec)
      : options_(options),
        spec_(spec),
        compute_(options.compute == "bf16" ? DType::kBF16 : DType::kF32),
        pool_(options.threads),
        host_pool_(options.threads),
        ops_(CreateCpuOps(compute_, &pool_)) {}

  absl::StatusOr<Json> Compare() {
    const double begin = Now();
    profile_ = CalibrateCpu("", compute_, pool_).profile;
    const double calibration = Now() - begin;
    MILLRACE_ASSIGN_OR_RETURN(
        state_, HostState::Create(MakeSlabLayouts(spec_),
                                  compute_ == DType::kBF16 ? Recipe::kFull : Recipe::kFp32,
                                  compute_, pool_));
    MILLRACE_RETURN_IF_ERROR(DrawWeights(spec_, 0, pool_, state_.get()));
    Json plans = Json::array();
    double worst = 0;
    int index = 0;
    for (const Case& c : Cases()) {
      if (options_.only >= 0 && options_.only != index++) continue;
      MILLRACE_ASSIGN_OR_RETURN(Json result, Measure(c));
      worst = std::max(worst, std::abs(result["error"].get<double>()));
      plans.push_back(std::move(result));
    }
    return Json{{"preset", options_.preset},     {"batch", options_.batch},
                {"sequence", options_.sequence}, {"compute", options_.compute},
                {"threads", options_.threads},   {"calibration_seconds", calibration},
                {"worst_error", worst},          {"plans", plans}};
  }

  StepShape Shape(int64_t micro_batches, bool clip) const {
    const int64_t tokens = options_.batch * options_.sequence;
    return ChooseStepShape(spec_, tokens, tokens / micro_batches, options_.sequence, clip,
                           compute_);
  }

  std::vector<Case> Cases() const {
    const int64_t blocks = spec_.num_layers;
    const auto plan = [&](bool unified, int64_t micro_batches, bool clip) {
      Plan p;
      p.shape = Shape(micro_batches, clip);
      p.unified = unified;
      p.update_time = clip ? UpdateTime::kBeforeNextUpload : UpdateTime::kAsGradientLands;
      return p;
    };
    std::vector<Case> cases;
    Plan p = plan(true, 1, true);
    p.kept_passes = blocks;
    cases.push_back({"unified, all kept", p});
    cases.push_back({"unified, all made again", plan(true, 1, true)});
    p = plan(true, 2, true);
    p.selective_passes = 2 * blocks;
    cases.push_back({"unified, selective, two micro-batches", p});
    p = plan(true, 2, false);
    p.order = Order::kBatchMajor;
    p.kept_passes = blocks;
    cases.push_back({"unified, batch-major, no clip", p});
    p = plan(false, 1, true);
    p.kept_passes = blocks;
    p.resident_units = static_cast<int>(blocks / 3);
    cases.push_back({"discrete, kept, a third resident, link of 4 GB/s", p, 4e9});
    cases.push_back({"discrete, all made again, link of 1 GB/s", plan(false, 1, true), 1e9});
    p = plan(false, 1, true);
    cases.push_back({"discrete, all made again, link of 0.3 GB/s", p, 3e8});
    p = plan(false, 2, false);
    p.selective_passes = blocks;
    p.offloaded_passes = 2 * blocks;
    p.weight_slots = 3;
    cases.push_back({"discrete, half selective, inputs on the host, no clip, 2 GB/s", p, 2e9});
    return cases;
  }

  absl::StatusOr<Json> Measure(const Case& c) {
    ScheduledModel model = MakeScheduledModel(spec_, *state_, *ops_, c.plan.shape);
    const bool deferred = c.plan.update_time == UpdateTime::kBeforeNextUpload;
    const Schedule schedule = BuildStepSchedule(model, c.plan, deferred);
    const DeviceProfile profile = WithLink(profile_, c.link_bytes_per_second, 0);
    const UpdateWork update = UpdateWorkOf(state_->layouts(), state_->recipe(), compute_);
    const Simulation predicted =
        Simulate(schedule, CostModel(model, c.plan, profile, update), c.plan.unified);

    Plan plan = c.plan;
    plan.device_bytes = schedule.device_bytes;
    plan.host_bytes = schedule.host_bytes;
    MILLRACE_ASSIGN_OR_RETURN(
        std::unique_ptr<Device> device,
        CreateCpuDevice({.budget_bytes = schedule.device_bytes,
                         .mode = plan.unified ? CpuDeviceMode::kUnified : CpuDeviceMode::kDiscrete,
                         .link_bytes_per_second = c.link_bytes_per_second}));
    MILLRACE_ASSIGN_OR_RETURN(
        std::unique_ptr<StepRunner> runner,
        StepRunner::Create(model, plan, device.get(), ops_.get(),
                           plan.unified ? &pool_ : &host_pool_, state_.get(), nullptr));
    const std::vector<MicroBatch> batches = RandomBatches(spec_, plan.shape, 0);
    const std::vector<TokenBatch> views = Views(batches);
    std::vector<double> seconds;
    // The first few touch memory for the first time.
    for (int64_t step = 1; step <= options_.steps + 3; ++step) {
      const double begin = Now();
      MILLRACE_RETURN_IF_ERROR(
          runner
              ->TrainStep(views,
                          {.step = step, .learning_rate = 1e-5, .clip_norm = deferred ? 1.0 : 0.0})
              .status());
      if (step > 3) seconds.push_back(Now() - begin);
    }
    std::sort(seconds.begin(), seconds.end());
    const double measured = seconds[seconds.size() / 2];
    Json result = {{"plan", c.name},
                   {"predicted_seconds", predicted.seconds},
                   {"measured_seconds", measured},
                   {"error", predicted.seconds / measured - 1},
                   {"predicted_idle", predicted.device_idle_ratio()}};
    if (options_.ops) result["ops"] = ByOpcode(schedule, predicted, *runner);
    MILLRACE_RETURN_IF_ERROR(runner->Flush());
    return result;
  }

  static Json ByOpcode(const Schedule& schedule, const Simulation& predicted,
                       const StepRunner& runner) {
    std::map<std::string, std::pair<double, double>> sums;
    for (size_t i = 0; i < schedule.instructions.size(); ++i) {
      sums[std::string(NameOf(schedule.instructions[i].opcode))].first +=
          predicted.intervals[i].seconds();
    }
    for (const TraceEvent& event : runner.Trace(0)) {
      sums[event.name].second += event.end - event.start;
    }
    Json ops;
    for (const auto& [name, sum] : sums) {
      ops[name] = {{"predicted", sum.first}, {"measured", sum.second}};
    }
    return ops;
  }

  const Options& options_;
  const ModelSpec spec_;
  const DType compute_;
  ThreadPool pool_, host_pool_;
  std::unique_ptr<Ops> ops_;
  DeviceProfile profile_;
  std::unique_ptr<HostState> state_;
};

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Compares the simulator with the machine and prints one JSON object.");
  app.add_option("--preset", options.preset)->check(CLI::IsMember(PresetNames()));
  app.add_option("--batch", options.batch, "sequences a step, an even number");
  app.add_option("--sequence", options.sequence, "tokens a sequence");
  app.add_option("--steps", options.steps, "measured steps a plan")->check(CLI::PositiveNumber);
  app.add_option("--compute", options.compute)->check(CLI::IsMember({"bf16", "f32"}));
  app.add_option("--threads", options.threads)->check(CLI::PositiveNumber);
  app.add_option("--only", options.only, "index of one plan to run alone");
  app.add_flag("--ops", options.ops, "also by kind of instruction");
  CLI11_PARSE(app, argc, argv);
  const absl::StatusOr<Json> result = Comparison::Run(options);
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
