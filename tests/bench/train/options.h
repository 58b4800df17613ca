// What the training benchmark is asked to do.
#ifndef MILLRACE_TESTS_BENCH_TRAIN_OPTIONS_H_
#define MILLRACE_TESTS_BENCH_TRAIN_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>

#include "CLI/CLI.hpp"
#include "engine/base/dtype.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/schedule/plan.h"
#include "engine/state/optimizer_kind.h"
#include "engine/state/recipe.h"

namespace millrace {

struct BenchOptions {
  std::string preset = "gpt2-124m";
  Recipe recipe = Recipe::kFull;
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  std::string compute = CpuHasBf16() ? "bf16" : "f32";
  std::string device = "cpu";
  int64_t batch = 4, sequence = 256, micro_batch = 0;
  int64_t steps = 12;
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  int host_threads = 0;  // of the optimizer and the embedding; 0: as many
  double clip_norm = 1.0;
  double link_gbps = 0;
  size_t device_budget = size_t{1} << 40, host_budget = size_t{1} << 40;
  std::string order, activations, layer_inputs, head;
  int64_t weight_slots = 0, resident_units = -1;
  std::string calibration;

  DType compute_dtype() const { return compute == "bf16" ? DType::kBF16 : DType::kF32; }
  bool unified() const { return device == "cpu"; }
  PlanChoices choices() const;
};

// Adds every option, with its checks, to `app`; `options` outlives it.
void AddOptions(CLI::App& app, BenchOptions& options);

}  // namespace millrace

#endif  // MILLRACE_TESTS_BENCH_TRAIN_OPTIONS_H_
