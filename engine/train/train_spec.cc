#include "engine/train/train_spec.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

// Far beyond any use; they keep sums and products of numbers that are not meant from passing 64
// bits, and work on them short.
constexpr int64_t kMostSteps = 1'000'000'000;
constexpr int64_t kMostSequenceLength = int64_t{1} << 24;
constexpr int64_t kMostTokensPerStep = int64_t{1} << 40;
constexpr int64_t kMostTokensPerMicroBatch = int64_t{1} << 30;  // positions have 32 bits
constexpr int64_t kMostCount = 1'000'000'000;
constexpr int64_t kMostSampleTokens = int64_t{1} << 20;
constexpr size_t kMostPrompts = 1000;
constexpr int64_t kMostThreads = 512;
constexpr int64_t kMostUnits = 1'000'000;
constexpr int64_t kMostTracedSteps = 100;  // some thousands of events each
constexpr int64_t kMostBytes = int64_t{1} << 60;
constexpr double kLeastEpsilon = 1e-30, kMostEpsilon = 1e30;
constexpr double kLeastLinkGbps = 1e-6, kMostLinkGbps = 1e9;

class Checker {
 public:
  void Refuse(absl::string_view field, const std::string& message) {
    problems_.push_back({std::string(field), message});
  }
  void Require(bool fine, absl::string_view field, const std::string& message) {
    if (!fine) Refuse(field, message);
  }
  // True when it is.
  bool Between(absl::string_view field, int64_t value, int64_t least, int64_t most) {
    Require(value >= least, field, absl::StrCat(value, " is too small; use at least ", least));
    Require(value <= most, field, absl::StrCat(value, " is too large; use at most ", most));
    return value >= least && value <= most;
  }
  void Within(absl::string_view field, double value, double low, double high) {
    Require(value >= low && value <= high, field,
            absl::StrCat(value, " is out of range; use a number from ", low, " to ", high));
  }
  void Positive(absl::string_view field, double value) {
    Require(std::isfinite(value) && value > 0, field,
            absl::StrCat(value, " is not a positive number"));
  }
  void NotNegative(absl::string_view field, double value) {
    Require(std::isfinite(value) && value >= 0, field,
            absl::StrCat(value, " is negative or not a number; use 0 or more"));
  }
  std::vector<FieldProblem> Take() { return std::move(problems_); }

 private:
  std::vector<FieldProblem> problems_;
};

int64_t RoundUp(int64_t value, int64_t multiple) {
  return std::max<int64_t>(1, (value + multiple - 1) / multiple) * multiple;
}

// Largest multiple of sequence_length that divides tokens_per_step and is at most `limit` (at least
// one sequence).
int64_t LargestMicroBatch(const TrainSpec& spec, int64_t limit) {
  const int64_t sequences = spec.tokens_per_step / spec.sequence_length;
  const int64_t most = std::max<int64_t>(limit / spec.sequence_length, 1);
  int64_t best = 1;
  for (int64_t n = 1; n * n <= sequences; ++n) {
    if (sequences % n != 0) continue;
    if (n <= most) best = std::max(best, n);
    if (sequences / n <= most) best = std::max(best, sequences / n);
  }
  return best * spec.sequence_length;
}

void CheckTokens(const TrainSpec& spec, Checker& check) {
  const bool sane =
      check.Between("data.sequence_length", spec.sequence_length, 2, kMostSequenceLength) &
      check.Between("train.tokens_per_step", spec.tokens_per_step, 1, kMostTokensPerStep);
  const bool whole_sequences = sane && spec.tokens_per_step % spec.sequence_length == 0;
  if (sane && !whole_sequences) {
    check.Refuse("train.tokens_per_step",
                 absl::StrCat(spec.tokens_per_step, " is not a multiple of data.sequence_length (",
                              spec.sequence_length, "); use ",
                              RoundUp(spec.tokens_per_step, spec.sequence_length)));
  }
  if (!spec.tokens_per_micro_batch.has_value()) return;
  const int64_t micro = *spec.tokens_per_micro_batch;
  if (!check.Between("train.tokens_per_micro_batch", micro, 1, kMostTokensPerMicroBatch) ||
      !whole_sequences) {
    return;
  }
  if (micro % spec.sequence_length != 0) {
    check.Refuse("train.tokens_per_micro_batch",
                 absl::StrCat(micro, " is not a multiple of data.sequence_length (",
                              spec.sequence_length, "); use ", LargestMicroBatch(spec, micro)));
  } else if (spec.tokens_per_step % micro != 0) {
    check.Refuse("train.tokens_per_micro_batch",
                 absl::StrCat(micro, " does not divide train.tokens_per_step (",
                              spec.tokens_per_step, "); use ", LargestMicroBatch(spec, micro)));
  }
}

// Those that not every optimizer has.
void CheckOptimizerNumbers(const TrainSpec& spec, Checker& check) {
  const auto only = [&](OptimizerKind kind, bool given, absl::string_view field) {
    check.Require(!given || spec.optimizer == kind, absl::StrCat("train.optimizer.", field),
                  absl::StrCat("only ", NameOf(kind), " has it, not ", NameOf(spec.optimizer),
                               "; remove it, or set name to ", NameOf(kind)));
  };
  only(OptimizerKind::kAdamW, spec.epsilon.has_value(), "epsilon");
  only(OptimizerKind::kSgd, spec.momentum.has_value(), "momentum");
  if (spec.betas) {
    check.Require(spec.optimizer != OptimizerKind::kSgd, "train.optimizer.betas",
                  "sgd has none; remove them and set momentum, or set name to adamw or lion");
    for (double beta : {spec.betas->first, spec.betas->second}) {
      check.Require(beta >= 0 && beta < 1, "train.optimizer.betas",
                    absl::StrCat(beta, " is out of range; use numbers from 0 to below 1"));
    }
  }
  // As f32 it must not vanish: it is all that divides where the second moment is zero.
  if (spec.epsilon) {
    check.Within("train.optimizer.epsilon", *spec.epsilon, kLeastEpsilon, kMostEpsilon);
  }
  if (spec.momentum) {
    check.Require(*spec.momentum >= 0 && *spec.momentum < 1, "train.optimizer.momentum",
                  absl::StrCat(*spec.momentum, " is out of range; use a number from 0 to below 1"));
  }
}

void CheckOptimizer(const TrainSpec& spec, Checker& check) {
  check.NotNegative("train.clip_norm", spec.clip_norm);
  check.NotNegative("train.z_loss", spec.z_loss);
  check.Positive("train.optimizer.learning_rate", spec.learning_rate);
  check.NotNegative("train.optimizer.weight_decay", spec.weight_decay);
  CheckOptimizerNumbers(spec, check);

  const bool sane =
      check.Between("train.schedule.warmup_steps", spec.warmup_steps, 0, kMostSteps) &&
      spec.steps <= kMostSteps;
  check.Require(spec.warmup_steps <= std::max<int64_t>(spec.steps, 0),
                "train.schedule.warmup_steps",
                absl::StrCat(spec.warmup_steps, " is more than train.steps (", spec.steps, ")"));
  check.Within("train.schedule.final_ratio", spec.final_ratio, 0, 1);
  if (!spec.decay_steps.has_value()) return;
  check.Require(spec.schedule == ScheduleKind::kWsd, "train.schedule.decay_steps",
                "only the schedule wsd has decay_steps; remove it or set name to wsd");
  check.Between("train.schedule.decay_steps", *spec.decay_steps, 0, kMostSteps);
  if (!sane) return;
  check.Require(*spec.decay_steps <= std::max<int64_t>(0, spec.steps - spec.warmup_steps),
                "train.schedule.decay_steps",
                absl::StrCat(*spec.decay_steps, " is more than the steps after warmup (",
                             spec.steps - spec.warmup_steps, ")"));
}

void CheckMemory(const TrainSpec& spec, Checker& check) {
  if (spec.device_budget_bytes) {
    check.Between("memory.device_budget", *spec.device_budget_bytes, 1, kMostBytes);
  }
  if (spec.host_budget_bytes) {
    check.Between("memory.host_budget", *spec.host_budget_bytes, 1, kMostBytes);
  }
  const bool is_discrete = spec.device == "cpu-discrete";
  check.Require(is_discrete || spec.device == "cpu", "memory.device",
                absl::StrCat("`", spec.device,
                             "` is unknown; use one of cpu, cpu-discrete (a card that is "
                             "not here is for `millrace plan --device`)"));
  if (spec.link_gbps) {
    check.Within("memory.link_gbps", *spec.link_gbps, kLeastLinkGbps, kMostLinkGbps);
    check.Require(is_discrete, "memory.link_gbps",
                  "only the device cpu-discrete has a link; remove it or set memory.device to "
                  "cpu-discrete");
  }
}

void CheckPlan(const PlanChoices& plan, Checker& check) {
  if (plan.weight_slots) {
    check.Between("memory.plan.weight_slots", *plan.weight_slots, 2, kMostUnits);
  }
  if (plan.resident_units) {
    check.Between("memory.plan.resident_units", *plan.resident_units, 0, kMostUnits);
  }
}

void CheckSampling(const TrainSpec& spec, Checker& check) {
  check.Between("sample.every_steps", spec.sample_every_steps, 0, kMostSteps);
  check.Between("sample.max_tokens", spec.sample_max_tokens, 1, kMostSampleTokens);
  check.NotNegative("sample.temperature", spec.temperature);
  check.Between("sample.top_k", spec.top_k, 0, kMostCount);
  check.Require(spec.sample_every_steps <= 0 || !spec.prompts.empty(), "sample.prompts",
                "there are none, so nothing would be sampled; add one, or remove "
                "sample.every_steps");
  check.Require(
      spec.prompts.size() <= kMostPrompts, "sample.prompts",
      absl::StrCat(spec.prompts.size(), " prompts are too many; give at most ", kMostPrompts));
  for (size_t i = 0; i < spec.prompts.size(); ++i) {
    check.Require(!spec.prompts[i].empty(), absl::StrCat("sample.prompts[", i, "]"),
                  "is empty; give at least one character");
  }
}

void CheckTrace(const TrainSpec& spec, Checker& check) {
  if (!spec.trace_steps) return;
  const auto [first, last] = *spec.trace_steps;
  check.Require(first >= 1, "trace.steps",
                absl::StrCat("the first, ", first, ", is too small; steps count from 1"));
  check.Require(first <= last, "trace.steps",
                absl::StrCat("the first, ", first, ", is after the last, ", last,
                             "; give the earlier one first"));
  check.Require(last <= spec.steps, "trace.steps",
                absl::StrCat("the last, ", last, ", is past the end of the run; use at most ",
                             spec.steps, ", which is train.steps"));
  check.Require(first < 1 || last < first || last - first < kMostTracedSteps, "trace.steps",
                absl::StrCat(first, " to ", last, " are more than ", kMostTracedSteps,
                             " steps; end with ", first + kMostTracedSteps - 1, " at the latest"));
}

}  // namespace

std::vector<FieldProblem> Validate(const TrainSpec& spec) {
  Checker check;
  check.Require(!spec.model_config_json.empty() || !spec.model_from.empty(), "model.config",
                "is missing; give the content of a config.json, e.g. {model_type: llama, …}, or "
                "name a model as model.from");
  check.Require(spec.model_config_json.empty() || spec.model_from.empty(), "model.from",
                absl::StrCat("`", spec.model_from,
                             "` has a config of its own; remove model.config, or model.from to "
                             "begin with random weights"));
  check.Require(spec.tokenizer.empty() || spec.tokenizer == "byte" || !spec.tokenizer_path.empty(),
                "tokenizer",
                absl::StrCat("`", spec.tokenizer,
                             "` is not known; use byte, or name a tokenizer or a model"));
  check.Require(!spec.data_path.empty(), "data.train", "is missing; name a dataset");
  check.Within("data.eval_fraction", spec.eval_fraction, 0, 0.5);
  check.Between("train.steps", spec.steps, 1, kMostSteps);
  CheckTokens(spec, check);
  CheckOptimizer(spec, check);
  if (spec.threads.has_value()) {
    check.Between("train.threads", *spec.threads, 1, kMostThreads);
  }
  if (spec.compute) {
    const absl::string_view problem = ComputeProblem(spec.recipe, *spec.compute);
    check.Require(problem.empty(), "precision.compute", std::string(problem));
  }
  CheckMemory(spec, check);
  CheckPlan(spec.plan, check);
  if (spec.checkpoint_every_steps) {
    check.Between("checkpoint.every_steps", *spec.checkpoint_every_steps, 0, kMostSteps);
  }
  check.Between("checkpoint.keep_last", spec.keep_last, 1, kMostCount);
  check.Between("checkpoint.keep_best", spec.keep_best, 0, kMostCount);
  if (spec.evaluate_every_steps) {
    check.Between("evaluation.every_steps", *spec.evaluate_every_steps, 0, kMostSteps);
  }
  check.Between("evaluation.max_sequences", spec.evaluate_max_sequences, 1, kMostCount);
  CheckSampling(spec, check);
  CheckTrace(spec, check);
  return check.Take();
}

TrainSpec Resolve(TrainSpec spec, int64_t cores, bool bf16_supported) {
  if (spec.tokenizer.empty() && spec.model_from.empty()) spec.tokenizer = "byte";
  if (!spec.threads) spec.threads = std::min(cores, kMostThreads);
  if (!spec.compute) {
    // Under `tiny` also where the processor has to emulate it.
    const DType best = bf16_supported ? DType::kBF16 : DType::kF32;
    const DType other = best == DType::kBF16 ? DType::kF32 : DType::kBF16;
    spec.compute = ComputeProblem(spec.recipe, best).empty() ? best : other;
  }
  switch (spec.optimizer) {
    case OptimizerKind::kAdamW:
      if (!spec.betas) spec.betas = {0.9, 0.95};
      if (!spec.epsilon) spec.epsilon = 1e-8;
      break;
    case OptimizerKind::kSgd:
      if (!spec.momentum) spec.momentum = 0.9;
      break;
    case OptimizerKind::kLion:
      if (!spec.betas) spec.betas = {0.9, 0.99};
      break;
  }
  if (!spec.decay_steps && spec.schedule == ScheduleKind::kWsd) {
    spec.decay_steps = std::min(spec.steps / 5, spec.steps - spec.warmup_steps);
  }
  if (!spec.checkpoint_every_steps) {
    spec.checkpoint_every_steps = std::max<int64_t>(1, spec.steps / 10);
  }
  return spec;
}

LearningRateSchedule ScheduleOf(const TrainSpec& spec) {
  return {.kind = spec.schedule,
          .peak = spec.learning_rate,
          .steps = spec.steps,
          .warmup_steps = spec.warmup_steps,
          .final_ratio = spec.final_ratio,
          .decay_steps = spec.decay_steps.value_or(0)};
}

OptimizerParams OptimizerParamsOf(const TrainSpec& spec) {
  OptimizerParams params{.weight_decay = spec.weight_decay};
  if (spec.betas) std::tie(params.beta1, params.beta2) = *spec.betas;
  if (spec.epsilon) params.epsilon = *spec.epsilon;
  if (spec.momentum) params.momentum = *spec.momentum;
  return params;
}

}  // namespace millrace
