#include "engine/train/job_plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/schedule/cost.h"
#include "engine/schedule/needed_flops.h"
#include "engine/schedule/planner.h"
#include "engine/schedule/trace.h"
#include "engine/train/job_shortfall.h"
#include "engine/train/job_step.h"

namespace millrace {
namespace {

// Of the step's time that a larger micro-batch must leave at most to be chosen.
constexpr double kWorthIt = 0.99;

using Planned = PlannedJobStep;

class JobPlanner {
 public:
  JobPlanner(const TrainSpec& spec, const ModelSpec& model, const JobTarget& target, bool trace)
      : spec_(spec), model_(model), target_(target), trace_(trace) {}

  absl::StatusOr<JobPlan> Run() {
    JobPlan plan;
    plan.device = target_.profile.name;
    plan.device_budget_bytes = target_.device_bytes;
    plan.host_budget_bytes = target_.host_bytes;
    plan.tokens_per_step = spec_.tokens_per_step;
    Assumptions(plan);
    const std::vector<StepShape> shapes = ShapesOf(spec_, model_, target_, std::nullopt);
    for (const StepShape& shape : shapes) {
      MILLRACE_RETURN_IF_ERROR(JobStep(spec_, model_, target_, shape).CheckChoices());
    }
    MILLRACE_ASSIGN_OR_RETURN(std::optional<Planned> best,
                              BestStep(spec_, model_, target_, shapes));
    if (!best) {
      Shortfall shortfall = ExplainShortfall(spec_, model_, target_);
      plan.shortfall = std::move(shortfall.text);
      plan.shortfall_field = std::move(shortfall.field);
      const JobStep step(spec_, model_, target_, shapes.back());
      plan.host_memory = step.host_memory();
      plan.device_memory = std::move(shortfall.least.device_memory);
      plan.host_memory.insert(plan.host_memory.end(), shortfall.least.host_memory.begin(),
                              shortfall.least.host_memory.end());
      return plan;
    }
    plan.fits = true;
    MILLRACE_RETURN_IF_ERROR(Widen(*best));
    Fill(*best, plan);
    MILLRACE_RETURN_IF_ERROR(MicroBatchChoice(*best, plan));
    Largest(*best, plan);
    return plan;
  }

 private:
  // Micro-batches of `tokens` with the first of their shapes; nullopt when that cannot be.
  absl::StatusOr<std::optional<Planned>> WithMicroBatch(int64_t tokens) const {
    if (spec_.tokens_per_micro_batch || tokens == 0 || tokens % spec_.sequence_length != 0 ||
        spec_.tokens_per_step % tokens != 0) {
      return std::nullopt;
    }
    std::vector<StepShape> shapes = ShapesOf(spec_, model_, target_, tokens);
    shapes.resize(1);
    return BestStep(spec_, model_, target_, shapes);
  }

  // Where the device is not a processor, whose runs have the usual micro-batch: larger ones while
  // they pay.
  absl::Status Widen(Planned& best) const {
    while (!target_.own()) {
      MILLRACE_ASSIGN_OR_RETURN(std::optional<Planned> wider,
                                WithMicroBatch(2 * best.step.shape().tokens_per_micro_batch));
      if (!wider || wider->seconds() > best.seconds() * kWorthIt) break;
      best = *std::move(wider);
    }
    return absl::OkStatus();
  }

  void Fill(const Planned& best, JobPlan& plan) const {
    const PlannedStep& planned = best.planned;
    const Simulation& simulation = planned.simulation;
    plan.plan = planned.plan;
    plan.device_memory = planned.plan.memory;
    plan.host_memory = best.step.host_memory();
    plan.host_memory.insert(plan.host_memory.end(), planned.plan.host_memory.begin(),
                            planned.plan.host_memory.end());
    plan.step_seconds = simulation.seconds;
    plan.tokens_per_second = static_cast<double>(spec_.tokens_per_step) / simulation.seconds;
    plan.model_flops = NeededFlops(model_, best.step.shape()) / simulation.seconds;
    plan.bound = BoundOf(planned.schedule, best.step.Cost(planned.plan), planned.plan.unified);
    plan.device_idle_ratio = simulation.device_idle_ratio();
    plan.stalls = simulation.stalls;
    if (trace_) plan.trace_json = Trace(best);
    for (const PlanAlternative& alternative : planned.alternatives) {
      plan.choices.push_back({alternative.choice, alternative.value, alternative.next_best,
                              alternative.extra_seconds, alternative.fixed});
    }
    plan.choices.push_back({.name = "update",
                            .value = planned.plan.update_time == UpdateTime::kBeforeNextUpload
                                         ? "before the next upload, with the exact norm"
                                         : "as the gradient lands",
                            .next_best = "",
                            .next_best_extra_seconds = 0,
                            .fixed = true});
  }

  static std::string Trace(const Planned& best) {
    const PlannedStep& planned = best.planned;
    std::vector<TraceEvent> events =
        MakeTraceEvents(planned.schedule, planned.simulation.intervals);
    const CostModel cost = best.step.Cost(planned.plan);
    for (size_t i = 0; i < events.size(); ++i) {
      events[i].flops = cost.Of(planned.schedule.instructions[i]).flops;
    }
    return TraceJson(events);
  }

  // Half and double the micro-batch, to tell what the choice is worth.
  absl::Status MicroBatchChoice(const Planned& best, JobPlan& plan) const {
    const int64_t chosen = best.step.shape().tokens_per_micro_batch;
    JobPlan::Choice choice{.name = "tokens_per_micro_batch",
                           .value = absl::StrCat(chosen),
                           .next_best = "",
                           .next_best_extra_seconds = 0,
                           .fixed = spec_.tokens_per_micro_batch.has_value()};
    double least = 0;
    for (int64_t tokens : {chosen / 2, chosen * 2}) {
      MILLRACE_ASSIGN_OR_RETURN(const std::optional<Planned> other, WithMicroBatch(tokens));
      if (!other || (!choice.next_best.empty() && other->seconds() >= least)) continue;
      least = other->seconds();
      choice.next_best = absl::StrCat(tokens);
      choice.next_best_extra_seconds = std::max(0.0, least - best.seconds());
    }
    plan.choices.push_back(std::move(choice));
    return absl::OkStatus();
  }

  void Largest(const Planned& best, JobPlan& plan) const {
    const auto last_good = [](const std::vector<int64_t>& values, auto&& good) {
      const auto end = std::partition_point(values.begin(), values.end(), good);
      return end == values.begin() ? 0 : *std::prev(end);
    };
    std::vector<int64_t> sizes = MultiplesDividing(spec_.tokens_per_step, spec_.sequence_length);
    plan.largest_micro_batch_tokens = last_good(sizes, [&](int64_t tokens) {
      if (tokens <= best.step.shape().tokens_per_micro_batch) return true;
      TrainSpec other = spec_;
      other.tokens_per_micro_batch = tokens;
      return JobFits(other, model_, target_);
    });
    const int64_t whole = spec_.tokens_per_micro_batch.value_or(spec_.tokens_per_step);
    std::vector<int64_t> lengths;
    for (int64_t length : MultiplesDividing(whole, 1)) {
      if (length <= model_.max_positions) lengths.push_back(length);
    }
    plan.largest_sequence_length = last_good(lengths, [&](int64_t length) {
      if (length <= spec_.sequence_length) return true;
      TrainSpec other = spec_;
      other.sequence_length = length;
      return JobFits(other, model_, target_);
    });
  }

  void Assumptions(JobPlan& plan) const {
    plan.assumptions.push_back(absl::StrCat("every sequence is one document of ",
                                            spec_.sequence_length, " tokens; attention is causal"));
    plan.assumptions.push_back(
        "tokens/s counts training steps alone: no evaluation, checkpoints or sampling");
    if (!target_.own()) {
      plan.assumptions.push_back(
          "the optimizer and the embedding run on the host; all of its cores and memory serve this "
          "job");
    }
    for (const DeviceProfile::Source& source : target_.profile.sources) {
      plan.assumptions.push_back(absl::StrCat(source.figure, ": ", source.sentence));
    }
  }

  const TrainSpec& spec_;
  const ModelSpec& model_;
  const JobTarget& target_;
  const bool trace_;
};

}  // namespace

absl::StatusOr<JobPlan> PlanJob(const TrainSpec& spec, const ModelSpec& model,
                                const PlanTarget& target) {
  MILLRACE_ASSIGN_OR_RETURN(const JobTarget resolved, ResolveTarget(spec, target));
  return JobPlanner(spec, model, resolved, target.trace).Run();
}

}  // namespace millrace
