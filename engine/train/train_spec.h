// What a training run is to do: the job file in plain C++ types.
//
//   std::vector<FieldProblem> problems = Validate(spec);   // by the job file's field paths
//
// Every default here is the default of the field in the job file.
#ifndef MILLRACE_ENGINE_TRAIN_TRAIN_SPEC_H_
#define MILLRACE_ENGINE_TRAIN_TRAIN_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/field_problem.h"
#include "engine/optim/learning_rate.h"
#include "engine/optim/optimizer.h"
#include "engine/schedule/plan.h"
#include "engine/state/optimizer_kind.h"
#include "engine/state/recipe.h"

namespace millrace {

struct TrainSpec {
  // model, one of the two. config: content of a Hugging Face style config.json. `vocab_size` may be
  // left out: it is then the tokenizer's.
  std::string model_config_json;
  // from: weights to begin with, as the job names them. `model_path` is the model directory or GGUF
  // file that the name stands for; a run that has a checkpoint needs it no more.
  std::string model_from;
  std::string model_path;
  // tokenizer, as the job names it. Empty: the model's own with `model_from`, else "byte".
  // `tokenizer_path` is the file or folder that another name than "byte" stands for.
  std::string tokenizer;
  std::string tokenizer_path;

  // data. `data_path` is the file or folder that data.train stands for.
  std::string data_path;
  double eval_fraction = 0.02;
  int64_t sequence_length = 0;  // tokens

  // train
  int64_t steps = 0;
  int64_t tokens_per_step = 0;
  std::optional<int64_t> tokens_per_micro_batch;  // the planner's choice when left out
  int64_t seed = 0;
  double clip_norm = 1.0;  // 0: no clipping
  double z_loss = 0;       // factor of mean (log Σ exp logits)²; 0: off
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  double learning_rate = 3e-4;
  double weight_decay = 0.1;
  std::optional<std::pair<double, double>> betas;  // adamw: 0.9, 0.95; lion: 0.9, 0.99
  std::optional<double> epsilon;                   // adamw only: 1e-8
  std::optional<double> momentum;                  // sgd only: 0.9
  ScheduleKind schedule = ScheduleKind::kCosine;
  int64_t warmup_steps = 0;
  double final_ratio = 0.1;
  std::optional<int64_t> decay_steps;  // wsd only; a fifth of `steps` when left out
  std::optional<int64_t> threads;      // the machine's cores when left out

  // precision
  Recipe recipe = Recipe::kFull;
  // bf16 where the processor has it, else f32; always bf16 under `tiny`, f32 under `fp32`.
  std::optional<DType> compute;

  // memory; the node's free memory when left out
  std::optional<int64_t> device_budget_bytes;
  std::optional<int64_t> host_budget_bytes;
  std::string device = "cpu";       // or "cpu-discrete"
  std::optional<double> link_gbps;  // cpu-discrete only; 10^9 bytes/s each way
  PlanChoices plan;
  // Of a run that goes on: how its head was cut, whatever would be chosen today.
  std::optional<int64_t> head_token_chunk, head_vocab_tile;
  // Not of the job but of the machine: the file of its processor's rates, where they were measured
  // (PlanTarget).
  std::string calibration_file;

  // checkpoint
  std::optional<int64_t> checkpoint_every_steps;  // a tenth of `steps` when left out; 0: the last
  int64_t keep_last = 2;
  int64_t keep_best = 1;

  // evaluation
  std::optional<int64_t> evaluate_every_steps;  // with each checkpoint when left out; 0: never
  int64_t evaluate_max_sequences = 64;

  // sample
  int64_t sample_every_steps = 0;  // 0: never
  std::vector<std::string> prompts;
  int64_t sample_max_tokens = 64;
  double temperature = 0.8;  // 0: greedy
  int64_t top_k = 40;        // 0: all

  // trace: first and last step to write a trace of
  std::optional<std::pair<int64_t, int64_t>> trace_steps;
};

// All that is wrong with the values by themselves (model and data are checked when they are read).
// Empty: fine.
std::vector<FieldProblem> Validate(const TrainSpec& spec);

// Fills in where they were left out what this machine decides (threads, compute type) and what
// depends on other fields (the optimizer's numbers, decay steps, checkpoint interval).
// `bf16_supported`: the processor computes in bf16. Requires a spec that Validate accepts. (The
// micro-batch is the planner's choice.)
TrainSpec Resolve(TrainSpec spec, int64_t cores, bool bf16_supported);

// The learning-rate schedule and the optimizer's numbers of a resolved spec.
LearningRateSchedule ScheduleOf(const TrainSpec& spec);
OptimizerParams OptimizerParamsOf(const TrainSpec& spec);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_TRAIN_TRAIN_SPEC_H_
