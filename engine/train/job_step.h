// The step of a job on a target: its shape, what it takes on both sides, and its plan.
#ifndef MILLRACE_ENGINE_TRAIN_JOB_STEP_H_
#define MILLRACE_ENGINE_TRAIN_JOB_STEP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/model_spec.h"
#include "engine/schedule/plan.h"
#include "engine/schedule/planner.h"
#include "engine/train/job_target.h"
#include "engine/train/train_spec.h"

namespace millrace {

// One shape that the job's step may have. The target outlives it.
class JobStep {
 public:
  JobStep(const TrainSpec& spec, const ModelSpec& model, const JobTarget& target,
          const StepShape& shape);

  const ScheduledModel& model() const { return model_; }
  const StepShape& shape() const { return shape_; }
  const PlanRequest& request() const { return request_; }
  // Host memory whatever the plan: "weights", "optimizer", "data", "runtime".
  const std::vector<MemoryItem>& host_memory() const { return host_memory_; }
  int64_t host_bytes() const;

  absl::Status CheckChoices() const;
  bool Fits() const;
  absl::StatusOr<PlannedStep> Plan() const { return PlanStep(model_, shape_, request_); }
  LeastMemory Least() const { return *LeastMemoryOf(model_, shape_, request_); }
  CostModel Cost(const millrace::Plan& plan) const {
    return CostModel(model_, plan, *request_.profile, request_.update);
  }

 private:
  const JobTarget* target_;
  ScheduledModel model_;
  StepShape shape_;
  std::vector<MemoryItem> host_memory_;
  PlanRequest request_;
};

// Shapes that the job leaves open, the preferred one first: smaller micro-batches follow, and on a
// device with memory to spare each with its logits in larger pieces first. `tokens_per_micro_batch`
// instead of the job's own.
std::vector<StepShape> ShapesOf(const TrainSpec& spec, const ModelSpec& model,
                                const JobTarget& target,
                                std::optional<int64_t> tokens_per_micro_batch);

// A step and how it is best run.
struct PlannedJobStep {
  JobStep step;
  PlannedStep planned;

  double seconds() const { return planned.simulation.seconds; }
};

// The fastest among the shapes of the first size of micro-batches that fits, in one of `shapes`;
// nothing when none does. CheckChoices is the caller's.
absl::StatusOr<std::optional<PlannedJobStep>> BestStep(const TrainSpec& spec,
                                                       const ModelSpec& model,
                                                       const JobTarget& target,
                                                       const std::vector<StepShape>& shapes);

// Whether the job fits in any of its shapes.
bool JobFits(const TrainSpec& spec, const ModelSpec& model, const JobTarget& target);

// Divisors of `whole` that are multiples of `part`, ascending.
std::vector<int64_t> MultiplesDividing(int64_t whole, int64_t part);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_TRAIN_JOB_STEP_H_
