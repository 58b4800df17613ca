#include "tests/bench/train/options.h"

#include <map>

#include "tests/bench/train/presets.h"

namespace millrace {

PlanChoices BenchOptions::choices() const {
  PlanChoices choices;
  if (!order.empty()) {
    choices.order = order == "batch_major" ? Order::kBatchMajor : Order::kLayerMajor;
  }
  if (weight_slots > 0) choices.weight_slots = weight_slots;
  if (resident_units >= 0) choices.resident_units = resident_units;
  if (!activations.empty()) {
    choices.activations = activations == "recompute"   ? Activations::kRecompute
                          : activations == "selective" ? Activations::kSelective
                                                       : Activations::kKeep;
  }
  if (!layer_inputs.empty()) choices.inputs_on_host = layer_inputs == "host";
  if (!head.empty()) {
    choices.head = head == "tiles" ? HeadPlacement::kTiled : HeadPlacement::kWhole;
  }
  return choices;
}

void AddOptions(CLI::App& app, BenchOptions& o) {
  app.add_option("--preset", o.preset)->check(CLI::IsMember(PresetNames()));
  app.add_option("--batch", o.batch, "sequences a step")->check(CLI::PositiveNumber);
  app.add_option("--micro_batch", o.micro_batch, "sequences a micro-batch; 0: all");
  app.add_option("--sequence", o.sequence, "tokens a sequence")->check(CLI::PositiveNumber);
  app.add_option("--steps", o.steps)->check(CLI::PositiveNumber);
  app.add_option("--recipe", o.recipe)
      ->transform(CLI::CheckedTransformer(std::map<std::string, Recipe>{{"full", Recipe::kFull},
                                                                        {"lean", Recipe::kLean},
                                                                        {"tiny", Recipe::kTiny},
                                                                        {"fp32", Recipe::kFp32}}));
  app.add_option("--optimizer", o.optimizer)
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, OptimizerKind>{{"adamw", OptimizerKind::kAdamW},
                                               {"sgd", OptimizerKind::kSgd},
                                               {"lion", OptimizerKind::kLion}}));
  app.add_option("--compute", o.compute)->check(CLI::IsMember({"bf16", "f32"}));
  app.add_option("--threads", o.threads)->check(CLI::PositiveNumber);
  app.add_option("--host_threads", o.host_threads,
                 "of the optimizer and the embedding's rows; 0: as many as --threads");
  app.add_option("--clip_norm", o.clip_norm, "0: no clipping")->check(CLI::NonNegativeNumber);
  app.add_option("--device", o.device)->check(CLI::IsMember({"cpu", "cpu-discrete"}));
  app.add_option("--link_gbps", o.link_gbps, "10^9 bytes/s each way, cpu-discrete; 0: no limit")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--device_budget", o.device_budget, "bytes, or with a unit")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--host_budget", o.host_budget,
                 "bytes for gradients, layer inputs and staging, or with a unit")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--order", o.order)->check(CLI::IsMember({"layer_major", "batch_major"}));
  app.add_option("--weight_slots", o.weight_slots, "0: the planner chooses");
  app.add_option("--resident_units", o.resident_units, "-1: the planner chooses");
  app.add_option("--activations", o.activations)
      ->check(CLI::IsMember({"recompute", "selective", "keep"}));
  app.add_option("--layer_inputs", o.layer_inputs)->check(CLI::IsMember({"device", "host"}));
  app.add_option("--head", o.head)->check(CLI::IsMember({"whole", "tiles"}));
  app.add_option("--calibration", o.calibration, "file of this machine's rates; else measured");
}

}  // namespace millrace
