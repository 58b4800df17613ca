// How a job's step would run, on this machine or on one that is not there: what goes where, how
// fast, and what bounds it.
//
//   MILLRACE_ASSIGN_OR_RETURN(JobPlan plan, PlanJob(spec, model, {.device = "rtx-3080-10gb",
//                                                                 .host_memory_bytes = 64 << 30}));
//   if (!plan.fits) Tell(plan.shortfall);
#ifndef MILLRACE_ENGINE_TRAIN_JOB_PLAN_H_
#define MILLRACE_ENGINE_TRAIN_JOB_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/model_spec.h"
#include "engine/schedule/bound.h"
#include "engine/schedule/plan.h"
#include "engine/schedule/stalls.h"
#include "engine/train/job_target.h"
#include "engine/train/train_spec.h"

namespace millrace {

struct JobPlan {
  // One thing that the planner decided or the job fixed.
  struct Choice {
    std::string name;  // "weight_slots", "resident_units", "activations", "layer_inputs",
                       // "order", "head", "tokens_per_micro_batch", "update"
    std::string value;
    std::string next_best;  // of another value; empty when no other fits
    double next_best_extra_seconds = 0;
    bool fixed = false;  // by the job
  };

  bool fits = false;
  std::string device;
  int64_t device_budget_bytes = 0, host_budget_bytes = 0;
  std::vector<MemoryItem> device_memory, host_memory;
  // When it does not fit: by how much, and which single change of the job would make it fit.
  std::string shortfall;
  // The field of the job file that is to blame: "memory.device_budget", …
  std::string shortfall_field;

  Plan plan;
  std::vector<Choice> choices;
  int64_t tokens_per_step = 0;
  double step_seconds = 0;
  double tokens_per_second = 0;
  double model_flops = 0;  // needed floating-point operations by the second
  Bound bound = Bound::kCompute;
  double device_idle_ratio = 0;
  StepStalls stalls;
  // The largest that still fit, everything else as in the job.
  int64_t largest_sequence_length = 0;
  int64_t largest_micro_batch_tokens = 0;
  std::vector<std::string> assumptions;
  // The predicted step as Perfetto and chrome://tracing read it, where the target asks for it.
  std::string trace_json;
};

// `spec` is resolved (train_spec.h). INVALID_ARGUMENT, beginning with the field, for a profile that
// is not known and for choices that contradict the model; a job that does not fit is an answer.
absl::StatusOr<JobPlan> PlanJob(const TrainSpec& spec, const ModelSpec& model,
                                const PlanTarget& target);

// As a text with tables: what goes where, what was chosen, and what the next best would cost.
std::string ExplainPlan(const JobPlan& plan);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_TRAIN_JOB_PLAN_H_
